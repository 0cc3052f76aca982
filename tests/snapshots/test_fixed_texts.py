"""Texts and names that the requirements fix word by word, each produced by the product itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from history.exporting import Selection, begin
from history.linting import lint_request, parse_conversation
from history.record import recorder
from history.record.selectors import snapshot as context_of
from history.text.titles import title_from
from project.accounts.models import User
from relay.runtime.async_db import in_database
from relay.tools.base import all_tools
from relay.tools.built_in import notebooks
from tests.factories import create_chat, model_input, model_output
from tests.relay.conftest import Talk
from tests.snapshots.samples import BEGUN, SESSION
from tests.snapshots.test_sockets import connected

pytestmark = pytest.mark.any_database

ENVIRONMENT = """\
This is Parley. We are setting up the context for our chat.
Today's date is <date> (formatted according to the user's locale).
My operating system is: <system>
The project's temporary directory is: <folder>

[Memory Notebook]
Likes tea.

Reminder: Do not return an empty response when a tool call is required.

My setup is complete. I will provide my first command in the next turn."""


async def test_history_and_switches_are_told_in_the_fixed_chinese_words(talk: Talk) -> None:
    await in_database(lambda: User.objects.filter(pk=talk.user.pk).update(language="zh-hans"))
    session = await in_database(lambda: create_chat(talk.user, "帮我查看CPU使用率", "CPU 使用率: 3.0%", title="服务器"))
    async with connected(talk.user, "read", "write", recording="full", owner_wide=True) as program:
        assert (await program.request("history"))["text"] == "暂无对话历史"
        assert (await program.request("switch", session=str(session.pk)))["text"] == "已切换到会话: 服务器"
        told = await program.request("history", format="text")
    assert told["text"] == "=== 对话历史 ===\n\n用户: 帮我查看CPU使用率\n\n助手: CPU 使用率: 3.0%"
    assert list(told["messages"][0]) == ["role", "content", "timestamp", "tool_calls", "metadata"]
    assert [one["role"] for one in told["messages"]] == ["user", "assistant"]


async def test_history_has_twenty_messages_unless_a_number_is_given(talk: Talk) -> None:
    session = await in_database(lambda: create_chat(talk.user, *(f"{number}" for number in range(25))))
    async with connected(talk.user, "read", owner_wide=True) as program:
        told = await program.request("history", session=str(session.pk))
    assert (len(told["messages"]), told["message_count"]) == (20, 25)


async def test_the_environment_message_has_the_fixed_lines(talk: Talk) -> None:
    agent = await talk.agent(environment=True)
    await in_database(notebooks.write, talk.user, agent.name, "Likes tea.", seen=0)
    provider = talk.scripted("Hello.")
    await talk.begin("Hello?")
    await talk.until_ended()
    first = provider.calls[0].context.entries[0]
    found = re.sub(r"(?<=Today's date is )\w+, \w+ \d+, \d{4}(?= \()", "<date>", first.content)
    found = re.sub(r"(?<=system is: )\w+", "<system>", found)
    assert re.sub(r"(?<=directory is: )\S+", "<folder>", found) == ENVIRONMENT


@pytest.mark.django_db
def test_an_answer_that_failed_begins_with_the_fixed_mark(ada: User) -> None:
    session = create_chat(ada, "Hello?")
    recorder.append(session, model_output("", status="failed", error="overloaded"), after=1)
    assert session.messages.get(seq=2).content == "【错误】overloaded"


@pytest.mark.django_db
def test_a_notebook_without_content_has_the_fixed_text(ada: User) -> None:
    assert context_of(create_chat(ada, "Hello?")).notebook == "（尚无内容）"


def test_a_role_that_gemini_does_not_know_is_reported_in_the_fixed_words() -> None:
    report = lint_request(parse_conversation({"contents": [{"role": "assistant", "parts": [{"text": "hi"}]}]}))
    found = {finding.text for verdict in report.verdicts for finding in verdict.findings}
    assert "Role must be user or model, but got assistant." in found


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "file_name", "keys"),
    [
        ("json", f"session_20251231_{SESSION}.json", ["session_id", "messages", "created_at", "updated_at"]),
        (
            "gemini-cli",
            "session-2025-12-31T10-00-11111111.json",
            ["sessionId", "projectHash", "startTime", "lastUpdated", "messages"],
        ),
    ],
)
def test_files_of_other_systems_have_their_fixed_names_and_keys(
    ada: User, name: str, file_name: str, keys: list[str]
) -> None:
    session = recorder.start_session(owner=ada, id=SESSION, created_at=BEGUN)
    recorder.append_many(session, [model_input("hi", at=BEGUN), model_output("Hello.", at=BEGUN)], after=0)
    export = begin(ada, Selection(sessions=(SESSION,)), name)
    written: dict[str, Any] = json.loads(b"".join(export.pieces()))
    assert export.file_name == file_name
    assert [key for key in written if key in keys] == keys


def test_tools_have_their_fixed_names() -> None:
    fixed = {"sys_monitor", "finish_task", "ask_user", "call_agent", "compress_chat_history"}
    assert fixed <= set(all_tools())


@pytest.mark.parametrize(
    "noise",
    [
        "<system-reminder>Be brief.</system-reminder>",
        "Todos have been modified successfully.",
        ENVIRONMENT.replace("This is Parley.", "This is the Gemini CLI."),
    ],
)
def test_reminders_and_setup_texts_are_never_titles(noise: str) -> None:
    assert title_from(noise) == ""
    assert title_from("Fix the parser.") == "Fix the parser."
