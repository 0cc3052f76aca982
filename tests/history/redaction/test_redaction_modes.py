"""What a recording mode keeps, and the operator's own hooks: they may fail, but never let a clear text through."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Error
from django.test import override_settings

from history.entries import (
    Media,
    ModelInput,
    ModelOutput,
    Reasoning,
    SystemInstructionSet,
    Text,
    ToolRequest,
    ToolResult,
    ToolResults,
    Usage,
)
from history.models import ApiKey
from history.redaction import MODES, check_redaction_settings, redacted, redacted_text, redactors_for, stores_bodies
from history.redaction.detectors import FORMATS, PERSONAL, SECRETS, TOKENS
from history.redaction.walker import Redactors

pytestmark = pytest.mark.no_database

KEY = "sk-" + "7Qx9Lm2Rt5Wv8Yb3Nc6Hd1Kf4Gj0PzSa"
HERE = "tests.history.redaction.test_redaction_modes"


# Hooks as an operator would write them.


def hide_nemo(text: str) -> str:
    return text.replace("Nemo", "[redacted:captain]")


def count_nemo(text: str) -> tuple[str, Counter[str]]:
    return hide_nemo(text), Counter({"captain": text.count("Nemo")})


def break_down(text: str) -> str:
    raise RuntimeError(f"cannot read {text}")


def return_nothing(text: str) -> None:
    return None


def return_rubbish(text: str) -> tuple[int, str]:
    return 1, text


NOT_A_FUNCTION = "a text"


def hooks(*names: str) -> Any:
    return override_settings(PARLEY_REDACTION_HOOKS=[f"{HERE}.{name}" for name in names])


def redacted_input(text: str, mode: str) -> str:
    entry = redacted(ModelInput(parts=(Text(text=text),)), redactors_for(mode)).entry
    return entry.text


# Modes.


def test_every_recording_mode_of_a_key_is_known() -> None:
    assert set(MODES) == set(ApiKey.Recording.values)


def test_full_keeps_everything() -> None:
    entry = ModelInput(parts=(Text(text=KEY),))
    assert redacted(entry, redactors_for("full")).entry is entry
    assert redactors_for("full").do_nothing


def test_redacted_removes_credentials_and_keeps_the_rest() -> None:
    assert (
        redacted_input(f"the key is {KEY}, says x@y.org", "redacted")
        == "the key is [redacted:openai-key], says x@y.org"
    )


def test_personal_data_goes_where_the_settings_ask_for_it() -> None:
    with override_settings(PARLEY_REDACTION_PERSONAL=["email"]):
        assert redacted_input("x@y.org and 13812345678", "redacted") == "[redacted:email] and 13812345678"
        assert redacted_input("x@y.org", "full") == "x@y.org"
    assert redacted_input("x@y.org", "redacted") == "x@y.org"


def test_no_replies_keeps_that_the_model_answered_and_which_tools_it_asked_for() -> None:
    answer = ModelOutput(
        plan="first I look",
        parts=(
            Reasoning(text="hm", signature="signed"),
            Text(text="Here it is."),
            ToolRequest(call_id="c1", name="read_file", arguments='{"path": "/private"}', extra={"signature": "s"}),
            Media(media_type="image/png", url="https://example.org/x.png"),
        ),
        model="m", status="interrupted", end_reason="stopped", usage=Usage(output_tokens=7),
        extra={"later": "Here it is."},
    )  # fmt: skip
    kept = redacted(answer, redactors_for("no_replies")).entry
    assert isinstance(kept, ModelOutput)
    assert kept.parts == (ToolRequest(call_id="c1", name="read_file"),)
    assert (kept.plan, kept.text, dict(kept.extra)) == (None, "", {})
    assert (kept.model, kept.status, kept.end_reason, kept.usage) == ("m", "interrupted", "stopped", answer.usage)
    assert kept.metadata["recording"] == "no_replies"


def test_no_replies_keeps_requests_without_their_credentials() -> None:
    assert redacted_input(f"use {KEY}", "no_replies") == "use [redacted:openai-key]"
    results = ToolResults(results=(ToolResult(call_id="c1", name="ls", parts=(Text(text="a b c"),)),))
    assert redacted(results, redactors_for("no_replies")).entry is results


@pytest.mark.parametrize("mode", ["metadata", "off"])
def test_modes_without_bodies_say_so_and_refuse_to_redact(mode: str) -> None:
    assert not stores_bodies(mode)
    with pytest.raises(ValueError, match="stores no texts"):
        redactors_for(mode)


def test_an_unknown_mode_is_refused_instead_of_stored_in_clear() -> None:
    with pytest.raises(ValueError, match="choose from full, redacted, no_replies, metadata, off"):
        redactors_for("ful")


# Hooks.


@pytest.mark.parametrize("mode", ["full", "redacted", "no_replies"])
def test_a_hook_runs_in_every_mode_that_stores_texts(mode: str) -> None:
    with hooks("hide_nemo"):
        assert redacted_input("Captain Nemo", mode) == "Captain [redacted:captain]"


def test_what_a_hook_changes_is_counted() -> None:
    with hooks("hide_nemo"):
        assert redacted_text("Nemo, Nemo", redactors_for("full"))[1] == Counter({"hook": 1})
        assert redacted_text("nothing", redactors_for("full"))[1] == Counter()
    with hooks("count_nemo"):
        assert redacted_text("Nemo, Nemo", redactors_for("full"))[1] == Counter({"captain": 2})


def test_hooks_run_in_order_and_after_the_credentials() -> None:
    with hooks("hide_nemo", "count_nemo"):
        assert redacted_input(f"Nemo {KEY}", "redacted") == "[redacted:captain] [redacted:openai-key]"


@pytest.mark.parametrize("name", ["break_down", "return_nothing", "return_rubbish"])
def test_a_hook_that_fails_never_lets_the_clear_text_through(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with hooks(name), caplog.at_level(logging.DEBUG):
        result = redacted(SystemInstructionSet(instruction="Captain Nemo"), redactors_for("full"))
    assert isinstance(result.entry, SystemInstructionSet)
    assert result.entry.instruction == "[redacted:hook-failed]"
    assert result.hits == Counter({"hook-failed": 1})
    assert f"{HERE}.{name}" in caplog.text
    assert "Nemo" not in caplog.text


def test_a_hook_cannot_break_the_pairing_of_calls_and_results() -> None:
    with hooks("break_down"):
        asked = redacted(ModelOutput(parts=(ToolRequest(call_id="c1", name="ls"),)), redactors_for("full")).entry
        answered = redacted(ToolResults(results=(ToolResult(call_id="c1", name="ls"),)), redactors_for("full")).entry
    assert isinstance(asked, ModelOutput)
    assert isinstance(answered, ToolResults)
    assert asked.tool_requests[0].call_id == answered.results[0].call_id == "c1"
    assert asked.tool_requests[0].name == answered.results[0].name == "ls"


def test_an_empty_text_is_not_given_to_a_hook() -> None:
    with hooks("break_down"):
        assert redacted_text("", redactors_for("full")) == ("", Counter())


def test_redactors_are_put_together_once() -> None:
    with hooks("hide_nemo"):
        assert redactors_for("full") is redactors_for("full")
    assert redactors_for("full") == Redactors()


# A wrong setting stops the start.


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no.such.module.hook", "cannot be imported"),
        (f"{HERE}.no_such_hook", "cannot be imported"),
        ("hook", "cannot be imported"),
        (f"{HERE}.NOT_A_FUNCTION", "is a str, not a callable"),
    ],
)
def test_a_wrong_hook_is_named_by_the_check(path: str, says: str) -> None:
    with override_settings(PARLEY_REDACTION_HOOKS=[f"{HERE}.hide_nemo", path]):
        (problem,) = check_redaction_settings()
    assert isinstance(problem, Error)
    assert problem.id == "history.E001"
    assert f"'{path}'" in problem.msg
    assert says in problem.msg
    assert problem.hint


def test_an_unknown_detector_is_named_by_the_check() -> None:
    with override_settings(PARLEY_REDACTION_PERSONAL=["email", "shoe-size"]):
        (problem,) = check_redaction_settings()
    assert problem.id == "history.E002"
    assert "shoe-size: choose from card, chinese-id, email, phone" in problem.msg


def test_right_settings_pass_the_check() -> None:
    with override_settings(PARLEY_REDACTION_HOOKS=[f"{HERE}.hide_nemo"], PARLEY_REDACTION_PERSONAL=["email"]):
        assert check_redaction_settings() == []


def test_the_documentation_names_every_detector_mode_and_setting() -> None:
    page = (Path(__file__).parents[3] / "docs" / "redaction.md").read_text()
    detectors = [detector.name for detector in (*TOKENS, *FORMATS, *SECRETS, *PERSONAL)]
    names = [*detectors, *MODES, "PARLEY_REDACTION_HOOKS", "PARLEY_REDACTION_PERSONAL", "history.E001", "history.E002"]
    assert [name for name in names if f"`{name}`" not in page] == []
