"""Formats that others read: their exact form, what they lose and say so, and that our own readers read them again."""

from __future__ import annotations

import ast
import csv
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from history import formats
from history.entries import (
    Media,
    ModelInput,
    ModelOutput,
    Reasoning,
    Summary,
    SystemInstructionSet,
    Text,
    ToolResults,
    Usage,
)
from history.exporting import Selection, begin
from history.exporting.exports import Export
from history.formats.readers import reader_for
from history.formats.sources import Source
from history.formats.writers import EXPORTERS
from history.models import Session
from history.record import recorder
from project.accounts.models import User
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results
from tests.history.formats.exported import rich_session
from tests.vendors.rules import problem_with

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

BEGUN = datetime(2025, 12, 31, 10, 0, tzinfo=UTC)


def export_of(session: Session, format: str) -> Export:
    return begin(session.owner, Selection(sessions=(session.pk,)), format)


def written(session: Session, format: str) -> str:
    return b"".join(export_of(session, format).pieces()).decode()


def notes_of(session: Session, format: str) -> set[str]:
    export = export_of(session, format)
    list(export.pieces())
    return {note.what for note in export.report.notes}


def monitored(owner: User) -> Session:
    """The conversation of seed 0."""
    session = recorder.start_session(owner=owner, created_at=BEGUN, workspace="/home/ada/project")
    outcome = tool_result("c1", "CPU 使用率: 3.0%", duration=0.5, started_at=BEGUN.replace(second=2))
    recorder.append_many(
        session,
        [
            model_input("帮我查看CPU使用率", at=BEGUN),
            model_output(
                "让我查看一下系统资源使用情况",
                tool_request("c1", arguments='{"metric": "cpu"}'),
                at=BEGUN.replace(second=1),
                model="",
            ),
            tool_results(outcome, at=BEGUN.replace(second=2)),
        ],
        after=0,
    )
    return session


# The form of seed 0.


def test_the_file_of_seed_0_is_exactly_that(ada: User) -> None:
    session = monitored(ada)
    export = export_of(session, "json")
    text = b"".join(export.pieces()).decode()
    assert export.file_name == f"session_20251231_{session.pk}.json"
    assert json.loads(text) == {
        "session_id": str(session.pk),
        "messages": [
            {
                "role": "user", "content": "帮我查看CPU使用率", "timestamp": "2025-12-31T10:00:00", "tool_calls": [],
                "metadata": {},
            },
            {
                "role": "assistant", "content": "让我查看一下系统资源使用情况", "timestamp": "2025-12-31T10:00:01",
                "tool_calls": [
                    {
                        "tool_name": "sys_monitor", "arguments": {"metric": "cpu"}, "result": "CPU 使用率: 3.0%",
                        "status": "success", "duration": 0.5, "timestamp": "2025-12-31T10:00:02",
                    }
                ],
                "metadata": {},
            },
        ],
        "created_at": "2025-12-31T10:00:00",
        "updated_at": "2025-12-31T10:00:02",
    }  # fmt: skip
    assert '"content": "帮我查看CPU使用率"' in text
    assert text == json.dumps(json.loads(text), ensure_ascii=False, indent=2) + "\n"


def test_what_that_file_says_is_read_again_without_loss(ada: User) -> None:
    session = rich_session(ada)
    recorder.append(session, model_input("with metadata", metadata={"from": "a phone"}), after=session.head)
    first = written(session, "json")
    (conversation,) = reads(first.encode(), "session.json")
    again = recorder.start_session(owner=ada, created_at=session.created_at, id=None)
    recorder.append_many(again, [node.entry for node in conversation.nodes], after=0)
    said_first, said_again = (json.loads(text)["messages"] for text in (first, written(again, "json")))
    assert said_again == said_first
    assert said_first[-1]["metadata"] == {"from": "a phone"}


def test_calls_without_words_stand_on_the_message_that_was_said_after_them(ada: User) -> None:
    session = create_chat(ada, "How warm?")
    chain = [
        model_output("", tool_request("a")),
        tool_results(tool_result("a", "20")),
        model_output("", tool_request("b")),
        tool_results(tool_result("b", "30")),
    ]
    recorder.append_many(session, [*chain, model_output("Warm.")], after=1)
    messages = json.loads(written(session, "json"))["messages"]
    assert [(m["role"], m["content"], [c["result"] for c in m["tool_calls"]]) for m in messages] == [
        ("user", "How warm?", []),
        ("assistant", "Warm.", ["20", "30"]),
    ]
    recorder.append(session, model_output("", tool_request("c"), status="interrupted"), after=session.head)
    last = json.loads(written(session, "json"))["messages"][-1]
    assert (last["content"], last["tool_calls"][0]["status"]) == ("", "interrupted")


def reads(content: bytes, name: str) -> list[Any]:
    source = Source(name, lambda: BytesIO(content))
    reader = reader_for(source.sample)
    assert reader is not None
    return list(reader.read(source))


# Gemini CLI.


def test_a_recording_of_gemini_cli_has_its_names_and_its_place(ada: User) -> None:
    session = monitored(ada)
    export = export_of(session, "gemini-cli")
    record = json.loads(b"".join(export.pieces()))
    assert list(record)[:4] == ["sessionId", "projectHash", "startTime", "lastUpdated"]
    assert (record["sessionId"], record["startTime"]) == (str(session.pk), "2025-12-31T10:00:00.000Z")
    assert export.file_name == f"session-2025-12-31T10-00-{str(session.pk)[:8]}.json"
    assert export.exporter.name_of(session) == f"{record['projectHash']}/chats/{export.file_name}"
    user, model = record["messages"]
    assert (user["type"], user["content"]) == ("user", [{"text": "帮我查看CPU使用率"}])
    assert (model["type"], model["content"]) == ("gemini", "让我查看一下系统资源使用情况")
    (asked,) = model["toolCalls"]
    assert (asked["name"], asked["args"], asked["status"]) == ("sys_monitor", {"metric": "cpu"}, "success")
    assert asked["result"][0]["functionResponse"]["response"] == {"output": "CPU 使用率: 3.0%"}


def test_a_session_that_goes_on_keeps_its_file_and_its_id(ada: User) -> None:
    session = recorder.start_session(owner=ada, created_at=BEGUN)
    begun = export_of(session, "gemini-cli")
    assert json.loads(b"".join(begun.pieces()))["messages"] == []
    recorder.append_many(session, [model_input("hello"), model_output("hi")], after=0)
    resumed = export_of(Session.objects.get(pk=session.pk), "gemini-cli")
    record = json.loads(b"".join(resumed.pieces()))
    assert resumed.file_name == begun.file_name
    assert record["sessionId"] == str(session.pk)
    assert len(record["messages"]) == 2


@pytest.mark.parametrize("form", ["gemini-cli", "gemini-cli-jsonl"])
def test_recordings_of_gemini_cli_are_read_again(ada: User, form: str) -> None:
    session = monitored(ada)
    thought = Reasoning(text="**Weighing**\n\nIs it warm?", provider="gemini")
    picture = recorder.store_blob(b"\x89PNG\r\n\x1a\n bytes", media_type="image/png")
    shown = Media(media_type="image/png", sha256=picture, name="p.png")
    usage = Usage(input_tokens=7, output_tokens=5, cache_read_tokens=2, reasoning_tokens=1)
    recorder.append_many(
        session,
        [
            ModelInput(parts=(Text(text="Look"), shown)),
            ModelOutput(parts=(thought, Text(text="Seen.")), model="gemini-3", provider="gemini", usage=usage),
        ],
        after=session.head,
    )
    (conversation,) = reads(written(session, form).encode(), "session.json")
    assert conversation.source_id == str(session.pk)
    assert [type(node.entry) for node in conversation.nodes] == [
        ModelInput, ModelOutput, ToolResults, ModelInput, ModelOutput
    ]  # fmt: skip
    last = conversation.nodes[-1].entry
    assert (last.text, last.reasoning, last.model) == ("Seen.", "**Weighing**\n\nIs it warm?", "gemini-3")
    assert (last.usage.input_tokens, last.usage.output_tokens) == (7, 5)
    assert conversation.blobs[picture] == b"\x89PNG\r\n\x1a\n bytes"
    assert conversation.notes == ()


# To read.


def test_markdown_tells_everything_and_no_text_breaks_out_of_its_block(ada: User) -> None:
    session = create_chat(ada, "Try\n# not a title")
    recorder.append_many(
        session,
        [model_output("So:", tool_request("a")), tool_results(tool_result("a", "```\n# break out\n````"))],
        after=1,
    )
    text = written(session, "markdown")
    assert text.startswith("# Try")
    assert "`````\n```\n# break out\n````\n`````" in text
    assert "sys_monitor" in text


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_one_file_without_scripts_or_addresses(ada: User) -> None:
    session = recorder.start_session(owner=ada)
    picture = recorder.store_blob(b"\x89PNG\r\n\x1a\n" + b"\0" * 40, media_type="image/png")
    svg = recorder.store_blob(b"<svg onload=alert(1)>", media_type="image/svg+xml")
    parts = (
        Text(text="<script>alert(1)</script> **bold** ![x](https://elsewhere.example/p.png)"),
        Media(media_type="image/png", sha256=picture, name='"><script>'),
        Media(media_type="image/png", sha256=svg, name="drawing"),
    )
    recorder.append_many(
        session,
        [
            ModelInput(parts=parts),
            model_output("", tool_request("<img src=x>")),
            tool_results(tool_result("<img src=x>", "</pre><script>")),
        ],
        after=0,
    )
    recorder.rename(session, title="</title><script>alert(2)</script>")
    text = written(session, "html")
    page = _Page()
    page.feed(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object"}
    assert {"strong", "style", "img"} <= names
    sources = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    assert len(sources) == 1
    assert sources[0].startswith("data:image/png;base64,")
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "prefers-color-scheme" in text or "light-dark(" in text
    assert "url(" not in text
    assert text.rstrip().endswith("</html>")


def test_a_table_has_a_row_for_each_message_and_call_and_no_formula(ada: User) -> None:
    session = create_chat(ada, "=HYPERLINK(1)")
    recorder.append_many(
        session,
        [model_output("+1", tool_request("a", arguments="@SUM(1)")), tool_results(tool_result("a", '-2"\n,3'))],
        after=1,
    )
    rows = list(csv.DictReader(StringIO(written(session, "csv").removeprefix("\ufeff"))))
    assert [row["kind"] for row in rows] == ["model_input", "model_output", "tool_call"]
    assert [rows[0]["text"], rows[1]["text"], rows[2]["arguments"], rows[2]["text"]] == [
        "'=HYPERLINK(1)", "'+1", "'@SUM(1)", "'-2\"\n,3"
    ]  # fmt: skip
    assert rows[0]["title"].startswith("'=")


# Requests to vendors.


@pytest.mark.parametrize(
    ("form", "dialect"), [("openai", "openai-chat"), ("anthropic", "anthropic-messages"), ("gemini", "gemini-generate")]
)
def test_a_request_is_one_that_its_vendor_takes(ada: User, form: str, dialect: str) -> None:
    session = rich_session(ada)
    summary = Summary(first=4, last=6, summary="They spoke of the weather.")
    recorder.append_many(
        session, [summary, model_input("one more"), model_output("", tool_request("x"))], after=session.head
    )
    body = json.loads(written(session, form))
    headers = {"anthropic-version": "2023-06-01"}
    assert problem_with(dialect, {"model": "m", **body}, headers, set()) is None
    assert "They spoke of the weather." not in json.dumps(body)
    assert notes_of(session, form) >= {"summaries: the original messages are included in full"}


def test_a_line_for_training_has_messages_and_tools_alone_and_is_read_again(ada: User) -> None:
    session = monitored(ada)
    line = json.loads(written(session, "openai"))
    assert set(line) <= {"messages", "tools"}
    (conversation,) = reads(written(session, "openai").encode(), "x.jsonl")
    assert [type(node.entry) for node in conversation.nodes][:3] == [ModelInput, ModelOutput, ToolResults]


def test_sharegpt_tells_who_spoke_and_is_read_again(ada: User) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append_many(session, [SystemInstructionSet(instruction="Be brief.")], after=0)
    chain = [
        model_input("How warm?"),
        model_output("", tool_request("a")),
        tool_results(tool_result("a", "20 °C")),
        model_output("Warm."),
    ]
    recorder.append_many(session, chain, after=1)
    line = json.loads(written(session, "sharegpt"))
    assert line["system"] == "Be brief."
    assert [turn["from"] for turn in line["conversations"]] == ["human", "function_call", "observation", "gpt"]
    assert json.loads(line["conversations"][1]["value"])["name"] == "sys_monitor"
    (conversation,) = reads(written(session, "sharegpt").encode(), "x.jsonl")
    spoken = [node.entry for node in conversation.nodes if isinstance(node.entry, ToolResults)]
    assert spoken[0].results[0].text == "20 °C"


# All of them.


@pytest.mark.parametrize("form", sorted(set(EXPORTERS) - {"jsonl"}))
def test_every_format_says_what_it_loses(ada: User, form: str) -> None:
    session = rich_session(ada)
    assert "entries on other branches" in notes_of(session, form)
    written(recorder.start_session(owner=ada), form)  # nothing was said yet: no error


@pytest.mark.parametrize("form", [name for name, exporter in EXPORTERS.items() if not exporter.one_file])
def test_several_files_come_in_a_zip_with_the_report(ada: User, form: str, tmp_path: Path) -> None:
    sessions = [monitored(ada), rich_session(ada), recorder.start_session(owner=ada)]
    export = begin(ada, Selection(), form)
    (tmp_path / "export.zip").write_bytes(b"".join(export.pieces()))
    assert (export.content_type, export.file_name[-4:]) == ("application/zip", ".zip")
    with ZipFile(tmp_path / "export.zip") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        report = json.loads(archive.read("loss-report.json"))
        content = archive.read(export.exporter.name_of(sessions[0])).decode()
    assert len(names) == len(set(names)) == 4
    assert not any(name.startswith("/") or ".." in name for name in names)
    assert content == written(sessions[0], form)
    assert (report["sessions"], report["format"]) == (3, form)
    assert any(note["what"] == "entries on other branches" for note in report["notes"])


@pytest.mark.parametrize("form", ["openai", "sharegpt", "csv"])
def test_one_stream_holds_all_sessions(ada: User, form: str) -> None:
    monitored(ada)
    create_chat(ada, "hello", "hi")
    text = b"".join(begin(ada, Selection(), form).pieces()).decode()
    if form == "csv":
        assert len({row["session"] for row in csv.DictReader(StringIO(text.removeprefix("\ufeff")))}) == 2
    else:
        assert len([json.loads(line) for line in re.split("\n", text.strip())]) == 2


@pytest.mark.any_database
def test_every_note_is_marked_for_translation() -> None:
    """A plain text would be shown in English to all users."""
    bare = [
        f"{path.name}:{call.lineno}"
        for path in Path(formats.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and len(call.args) > 1 and "notes" in ast.unparse(call.func)
        if isinstance(call.args[1], ast.Constant | ast.JoinedStr)
    ]
    assert bare == []
