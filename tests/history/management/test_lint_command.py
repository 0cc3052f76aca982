"""`manage.py history lint`: sessions, files and standard input, for people and for programs."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from history.linting import NAMES, RULES
from history.record import recorder
from tests.clients import run_history, run_history_json
from tests.factories import create_chat, model_input, model_output, tool_request
from tests.history.pages.test_lint import UNANSWERED

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

GOOD = '{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(UNANSWERED))
    return path


@pytest.mark.parametrize("options", [("--file",), ()], ids=["named as a file", "as it is"])
def test_a_file_that_would_be_rejected_gives_exit_code_1_and_says_where(broken: Path, options: tuple[str, ...]) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match=r"Would be rejected: .*broken\.json") as refused:
        run_history("lint", *options, broken, out=out)
    assert refused.value.returncode == 1
    assert "messages[1].tool_calls[0]  Each tool_use must have a tool_result; f (a) has none." in out.getvalue()
    assert "Anthropic Messages  rejected" in out.getvalue()


def test_standard_input_that_all_vendors_accept_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(GOOD))
    report = run_history_json("lint", "-")
    assert [verdict["outcome"] for verdict in report["conversations"][0]["verdicts"]] == ["taken"] * 4


def test_json_has_everything_of_each_vendor(broken: Path) -> None:
    out = StringIO()
    with pytest.raises(CommandError):
        run_history("lint", "--file", broken, "--json", out=out)
    report = json.loads(out.getvalue())["conversations"][0]
    assert (report["language"], report["rejected"]) == ("openai-chat", True)
    assert [verdict["vendor"] for verdict in report["verdicts"]] == list(NAMES)
    finding = report["verdicts"][2]["findings"][0]
    assert set(finding) == {"rule", "severity", "place", "text", "answer"}
    assert finding["rule"] in RULES
    assert report["verdicts"][2]["repairs"][0]["code"] == "result_supplied"
    assert report["verdicts"][2]["repaired"]["messages"][-1]["content"][0]["type"] == "tool_result"


def test_the_repaired_version_alone_can_be_sent_on(broken: Path) -> None:
    repaired = json.loads(run_history("lint", "--file", broken, "--repaired", "gemini-generate")[0])
    assert [content["role"] for content in repaired["contents"]] == ["user", "model", "user"]


def test_only_the_vendor_that_is_named_counts(tmp_path: Path) -> None:
    path = tmp_path / "model_first.json"
    path.write_text('{"model": "m", "messages": [{"role": "assistant", "content": "Hi"}]}')
    with pytest.raises(CommandError):
        run_history("lint", "--file", path)
    assert "Gemini" not in run_history("lint", "--file", path, "--vendor", "openai-chat")[0]


def test_lines_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(f"{GOOD}\n{json.dumps(UNANSWERED)}\n")
    with pytest.raises(CommandError, match=r"many\.jsonl:2\.$"):
        run_history("lint", "--file", path)


def test_a_session_is_named_like_everywhere(ada: Any, bob: Any) -> None:
    session = create_chat(ada)
    recorder.append_many(session, [model_input("Hi"), model_output("", tool_request("a"))], after=0)
    out = StringIO()
    with pytest.raises(CommandError, match=f"Would be rejected: {session.pk}"):
        run_history("lint", str(session.pk)[:8], out=out)
    assert "#2  Each call must have a tool message" in out.getvalue()
    with pytest.raises(CommandError, match="There is no session"):
        run_history("lint", str(session.pk)[:8], "--as", "bob")


@pytest.mark.parametrize(
    ("arguments", "words"), [([], "Name a session"), (["--file", "/nowhere/at/all.json"], "No such file")]
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run_history("lint", *arguments)


def test_what_is_no_conversation_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    with pytest.raises(CommandError, match="messages, input or contents"):
        run_history("lint", "--file", path)
