"""The socket for programs: every command, every error, and an answer that outlives the connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator

from history import retention
from history.access import keys
from history.answers.events import ToolCallPiece
from history.models import ApiKey, Exchange, Session
from project.accounts.models import User
from relay.consumers.program import ProgramConsumer
from relay.models import Run
from relay.routing import sockets
from relay.runtime.async_db import in_database
from tests.factories import create_chat
from tests.relay.conftest import Talk


class Program:
    """A client that keeps what it was told, and looks for what it wants."""

    def __init__(self, socket: WebsocketCommunicator) -> None:
        self.socket, self.frames = socket, list[dict[str, Any]]()

    async def request(self, kind: str, **what: Any) -> dict[str, Any]:
        await self.socket.send_to(json.dumps({"type": kind, "id": kind, **what}))
        return await self.until(lambda frame: frame.get("id") == kind)

    async def until(self, is_it: Any) -> dict[str, Any]:
        while True:
            frame: dict[str, Any] = json.loads(await self.socket.receive_from(timeout=10))
            self.frames.append(frame)
            if is_it(frame):
                return frame

    async def event(self, kind: str) -> dict[str, Any]:
        return await self.until(lambda frame: frame["type"] == kind)

    def text(self) -> str:
        """All text that came as pieces."""
        pieces = [piece for frame in self.frames if frame["type"] == "run.pieces" for piece in frame["pieces"]]
        return "".join(piece[2] for piece in pieces if piece[0] == "text")


def key_for(user: User, *scopes: str, **options: Any) -> str:
    return keys.create(name="program", owner=user, scopes=list(scopes), **options).secret


async def connect(key: str = "", **headers: str) -> tuple[Program, bool]:
    sent = {"authorization": f"Bearer {key}", **headers} if key else headers
    encoded = [(name.encode(), value.encode()) for name, value in sent.items()]
    socket = WebsocketCommunicator(sockets, "/ws/v1/", headers=encoded)
    is_open, _ = await socket.connect(timeout=10)
    return Program(socket), is_open


@pytest.fixture
async def program(talk: Talk) -> AsyncIterator[Program]:
    key = await in_database(key_for, talk.user, "read", "write", "delete", recording="full")
    found, is_open = await connect(key)
    assert is_open
    assert (await found.event("welcome"))["protocol"] == 1
    yield found
    await found.socket.disconnect(timeout=10)


async def session_of(talk: Talk, frame: dict[str, Any]) -> None:
    talk.session = await in_database(lambda: Session.objects.get(pk=frame["session_id"]))


async def test_the_first_message_makes_the_session_that_the_welcome_named(talk: Talk, program: Program) -> None:
    talk.scripted("Hello yourself.")
    assert await in_database(Session.objects.count) == 0
    sent = await program.request("send", text="Hello?")
    assert sent["session_id"] == program.frames[0]["session_id"]
    ended = await program.event("run.ended")
    assert ended["outcome"] == "done"
    assert program.text() == "Hello yourself."


async def test_history_tells_who_said_what_with_calls_and_how_many_there_are_in_all(
    talk: Talk, program: Program
) -> None:
    call = ToolCallPiece(part="c", call_id="c", name="current_time", arguments="{}")
    await talk.agent(tools=["current_time"])
    talk.scripted(["Let me see.", call], "Noon.", "Still noon.")
    await program.request("send", text="How late is it?")
    await program.event("run.ended")
    await program.request("send", text="And now?")
    await program.event("run.ended")
    frame = await program.request("history")
    assert [(one["role"], one["content"]) for one in frame["messages"] if one["role"] != "system"] == [
        ("user", "How late is it?"), ("assistant", "Let me see."), ("assistant", "Noon."),
        ("user", "And now?"), ("assistant", "Still noon."),
    ]  # fmt: skip
    assert frame["message_count"] == 5, "what people see as messages, as in lists and over REST"
    made = next(one for one in frame["messages"] if one["tool_calls"])["tool_calls"][0]
    assert (made["tool_name"], made["arguments"], made["status"]) == ("current_time", {}, "success")
    assert made["result"]
    assert made["duration"] >= 0
    assert made["timestamp"]
    assert set(frame["messages"][-1]) == {"role", "content", "timestamp", "tool_calls", "metadata"}
    last = await program.request("history", count=1)
    assert (len(last["messages"]), last["message_count"]) == (1, 5)
    older = await program.request("history", count=1, cursor=last["cursor"])
    assert older["messages"][0]["content"] == "And now?"
    assert "User: How late is it?" in (await program.request("history", format="text"))["text"]


async def test_no_history_yet_is_an_answer_and_no_error(program: Program) -> None:
    frame = await program.request("history")
    assert (frame["type"], frame["messages"], frame["message_count"]) == ("history", [], 0)
    assert frame["text"] == "No conversation history yet"
    created = await program.request("create", title="Empty")
    frame = await program.request("history", session=created["session"]["session_id"])
    assert (frame["messages"], frame["text"]) == ([], "No conversation history yet")


async def test_a_switch_is_confirmed_and_a_failed_one_changes_nothing(talk: Talk, program: Program) -> None:
    talk.scripted("Hello.")
    first = (await program.request("create", title="The build server"))["session"]
    second = (await program.request("create", title="Holidays"))["session"]
    frame = await program.request("switch", session=first["session_id"])
    assert frame["text"] == "Switched to session: The build server"
    failed = await program.request("switch", session="11111111-2222-3333-4444-555555555555")
    assert (failed["type"], failed["code"]) == ("error", "no_such_session")
    sent = await program.request("send", text="Where am I?")
    assert sent["session_id"] == first["session_id"]
    listed = await program.request("list")
    assert {one["session_id"] for one in listed["sessions"]} == {first["session_id"], second["session_id"]}


async def test_a_stranger_sees_nothing_of_it(talk: Talk, program: Program, bob: User) -> None:
    talk.scripted("Hello.")
    sent = await program.request("send", text="A secret")
    await program.event("run.ended")
    stranger, _ = await connect(await in_database(key_for, bob, "read", "write", "delete", recording="full"))
    await stranger.event("welcome")
    for kind in ("open", "history", "send", "stop", "delete", "fork", "rename", "edit", "regenerate", "rollback"):
        frame = await stranger.request(kind, session=sent["session_id"], text="x", title="x", seq=1, to=1)
        assert (frame["type"], frame["code"]) == ("error", "no_such_session"), kind
    assert (await stranger.request("list"))["sessions"] == []
    await stranger.socket.disconnect(timeout=10)


async def test_only_who_has_a_key_or_a_cookie_and_our_origin_gets_in(talk: Talk) -> None:
    for key, headers in (
        ("", {}),
        ("", {"origin": "http://evil.example"}),
        ("parley_unknown1234_" + "x" * 43, {}),
        ("rubbish", {}),
    ):
        _, is_open = await connect(key, **headers)
        assert not is_open


async def test_a_key_without_the_scope_reads_and_does_not_write(talk: Talk) -> None:
    program, _ = await connect(await in_database(key_for, talk.user, "read"))
    await program.event("welcome")
    frame = await program.request("send", text="Hello")
    assert (frame["type"], frame["code"]) == ("error", "scope_missing")
    assert (await program.request("list"))["type"] == "list"
    await program.socket.disconnect(timeout=10)


async def test_a_key_that_keeps_no_texts_cannot_hold_a_conversation(talk: Talk) -> None:
    program, _ = await connect(await in_database(key_for, talk.user, "read", "write", recording="metadata"))
    await program.event("welcome")
    assert (await program.request("send", text="Hello"))["code"] == "not_recorded"
    await program.socket.disconnect(timeout=10)


async def test_a_revoked_key_has_no_say_any_more(talk: Talk) -> None:
    raw = await in_database(key_for, talk.user, "read", "write", recording="full")
    program, _ = await connect(raw)
    await program.event("welcome")
    found = await in_database(keys.find, raw.split("_")[1])
    assert found is not None
    await in_database(keys.revoke, found, actor=None)
    await program.socket.send_to(json.dumps({"type": "list"}))
    closed = await program.socket.receive_output(timeout=10)
    while closed["type"] == "websocket.send":
        closed = await program.socket.receive_output(timeout=10)
    assert closed == {"type": "websocket.close", "code": 4401}


@pytest.mark.parametrize(
    "rubbish",
    [
        "{",
        "[]",
        '"send"',
        "[" * 5_000,
        '{"type": 7}',
        '{"type": "fly"}',
        '{"type": "send", "text": 7}',
        '{"type": "edit", "seq": -1}',
        '{"type": "history", "count": "many"}',
        '{"type": "history", "cursor": 99999999999999999999}',
        '{"type": "stop", "run": "no id"}',
        '{"type": "list", "cursor": "x"}',
        '{"type": "send", "text": "\\u0000\\ud800"}',
    ],
)
async def test_what_makes_no_sense_gets_an_error_and_the_socket_lives_on(program: Program, rubbish: str) -> None:
    await program.socket.send_to(rubbish)
    if "ud800" not in rubbish:
        assert (await program.event("error"))["message"]
    assert (await program.request("ping"))["type"] == "ping"


async def test_a_frame_that_is_too_long_and_too_many_of_them_are_refused(program: Program) -> None:
    await program.socket.send_to(json.dumps({"type": "send", "text": "x" * 1_000_001}))
    assert "characters" in (await program.event("error"))["message"]
    answers = [await program.request("ping") for _ in range(40)]
    assert answers[0]["type"] == "ping"
    assert answers[-1]["code"] == "too_fast"


async def test_a_late_viewer_gets_the_whole_answer_without_gap_or_repetition(talk: Talk, program: Program) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    talk.scripted(["one ", "two ", gates[0], "three ", gates[1], "four"])
    sent = await program.request("send", text="Count.")
    await program.until(lambda frame: program.text() == "one two ")
    await program.socket.disconnect(timeout=10)
    other, _ = await connect(await in_database(key_for, talk.user, "read", owner_wide=True))
    await other.event("welcome")
    opened = await other.request("open", session=sent["session_id"])
    before = "".join(piece[2] for piece in opened["running"][0]["pieces"])
    gates[0].set()
    await other.until(lambda frame: "three" in other.text())
    gates[1].set()
    assert (await other.event("run.ended"))["outcome"] == "done"
    numbers = [frame["n"] for frame in other.frames if "n" in frame]
    assert before + other.text() == "one two three four"
    assert numbers == list(range(opened["running"][0]["n"] + 1, numbers[-1] + 1))
    await other.socket.disconnect(timeout=10)


async def test_a_run_is_stopped_by_its_id_and_keeps_what_there_was(talk: Talk, program: Program) -> None:
    talk.scripted(["The beginning", asyncio.Event()])
    sent = await program.request("send", text="Tell me.")
    await program.until(lambda frame: program.text())
    await program.request("stop", run=sent["run"])
    assert (await program.event("run.ended"))["outcome"] == "stopped"
    last = (await program.request("history", count=1))["messages"][0]
    assert (last["content"], last["metadata"]["status"], last["metadata"]["end_reason"]) == (
        "The beginning", "interrupted", "stopped",
    )  # fmt: skip


async def test_an_answer_that_was_cut_short_is_continued(talk: Talk, program: Program) -> None:
    provider = talk.scripted(["The beginning", asyncio.Event()], " and the end.")
    sent = await program.request("send", text="Tell me.")
    await program.until(lambda frame: program.text())
    await program.request("stop", run=sent["run"])
    await program.event("run.ended")
    assert (await program.request("continue"))["run"] != sent["run"]
    assert (await program.event("run.ended"))["outcome"] == "done"
    said = (await program.request("history"))["messages"]
    assert [one["content"] for one in said if one["role"] == "assistant"] == ["The beginning", " and the end."]
    assert "The beginning" in str(provider.calls[-1].context)


async def test_a_question_of_the_agent_is_answered_with_its_call_id(talk: Talk, program: Program) -> None:
    await talk.agent(tools=["ask_user"])
    question = ToolCallPiece(part="1", call_id="q", name="ask_user", arguments='{"question": "Which server?"}')
    talk.scripted([question], "Thank you.")
    await program.request("send", text="Connect.")
    ended = await program.event("run.ended")
    assert ended["outcome"] == "waiting"
    await program.request("answer", seq=ended["leaf"], call_id="q", text="The second one.")
    assert (await program.event("run.ended"))["outcome"] == "done"
    said = (await program.request("history"))["messages"]
    assert said[-1]["content"] == "Thank you."
    assert "The second one." in str([one["tool_calls"] for one in said])
    assert (await program.request("answer", seq=ended["leaf"], call_id="q", text="Again."))["code"] == "not_possible"


@pytest.mark.any_database
def test_every_command_and_every_event_is_in_the_docs() -> None:
    page = Path("docs/websocket.md").read_text()
    kinds = {"opened", "pieces", "calling", "result", "stored", "ended"}
    events = {"welcome", "error", "session.changed", *(f"run.{kind}" for kind in kinds)}
    assert [
        word for word in {*ProgramConsumer.actions, *events} if f"`{word}`" not in page and f'"{word}"' not in page
    ] == []


async def test_edit_regenerate_rollback_fork_rename_and_delete(talk: Talk, program: Program) -> None:
    talk.scripted("First.", "Second.", "Third.")
    sent = await program.request("send", text="Hello")
    await program.event("run.ended")
    edited = await program.request("edit", seq=sent["seq"], text="Hello again")
    await program.event("run.ended")
    answer = (await program.request("history"))["messages"][-1]
    assert answer["content"] == "Second."
    await program.request("regenerate", seq=answer["metadata"]["seq"])
    await program.event("run.ended")
    assert [one["content"] for one in (await program.request("history"))["messages"][-2:]] == ["Hello again", "Third."]
    forked = await program.request("fork", seq=edited["seq"])
    copy = await program.request("history", session=forked["session"]["session_id"])
    assert [one["content"] for one in copy["messages"] if one["role"] != "system"] == ["Hello again"]
    assert (await program.request("rename", title="Greetings"))["session"]["title"] == "Greetings"
    await program.request("rollback", to=edited["seq"])
    assert (await program.request("history"))["messages"][-1]["content"] == "Hello again"
    await program.request("delete")
    gone = await program.request("history", session=sent["session_id"])
    assert gone["code"] == "no_such_session"


async def test_a_command_is_done_without_a_model(talk: Talk, program: Program) -> None:
    provider = talk.scripted("never")
    await program.request("send", text="/current_time")
    frame = (await program.request("history"))["messages"]
    assert frame[-1]["tool_calls"][0]["status"] == "success"
    assert "/title" in (await program.request("send", text="/help"))["text"]
    assert provider.calls == []
    assert await in_database(Run.objects.count) == 0
    assert await in_database(Exchange.objects.count) == 0


@pytest.mark.any_database
async def test_a_program_is_told_when_a_summary_is_begun_and_when_it_is_there(talk: Talk, program: Program) -> None:
    talk.scripted("## Goal\nTo weave a long carpet.\n## Next step\nWeave on, row by row.")
    key, long = await in_database(ApiKey.objects.get), ["one row, and then another one " * 30] * 8
    talk.session = await in_database(lambda: create_chat(talk.user, *long, api_key=key))
    await program.request("open", session=str(talk.session.pk))
    await program.request("compress")
    await program.event("run.ended")
    frame = [(one["type"], one.get("is_on")) for one in program.frames if one["type"].startswith("run.")]
    assert frame == [("run.summarising", True), ("run.summarising", False), ("run.stored", None), ("run.ended", None)]


async def test_a_program_goes_on_after_its_session_was_deleted(talk: Talk, program: Program) -> None:
    talk.scripted("One.", "Two.", "Three.", "Four.")
    made = []
    for text in ("first", "second", "third"):
        made.append((await program.request("send", text=text))["session_id"])
        await program.event("run.ended")
        assert (await program.request("delete"))["type"] == "delete"
    assert len(set(made)) == 3
    assert (await program.request("history"))["messages"] == []
    assert (await program.request("delete"))["code"] == "no_such_session"


@pytest.mark.parametrize("command", ["send", "history", "rename", "stop"])
async def test_a_session_that_was_deleted_elsewhere_is_let_go(talk: Talk, program: Program, command: str) -> None:
    talk.scripted("One.", "Two.")
    sent = await program.request("send", text="first")
    await program.event("run.ended")
    await session_of(talk, sent)
    await in_database(retention.hide, talk.session, actor=talk.user)
    frame = await program.request(command, text="second", title="x")
    assert (frame["type"], frame["code"]) == ("error", "no_such_session")
    again = await program.request("send", text="second")
    assert again["session_id"] != sent["session_id"]
    assert (await program.event("run.ended"))["outcome"] == "done"


@pytest.mark.parametrize(
    ("field", "code"), [({"agent": "unknown"}, "no_such_agent"), ({"model": "unknown/model"}, "no_such_model")]
)
async def test_an_unknown_agent_or_model_is_an_error_that_names_it(
    talk: Talk, program: Program, field: dict[str, str], code: str
) -> None:
    talk.scripted(["Hello.", asyncio.Event()])
    await talk.agent()
    [name] = field.values()
    frame = await program.request("send", text="Anybody?", **field)
    assert (frame["type"], frame["code"], name in frame["message"]) == ("error", code, True)
    # Nothing was stored, and the same holds for an edit and for a message that would wait.
    started = await program.request("send", text="Hello?")
    await talk.until(lambda: Exchange.objects.exists())
    for command in ({"type": "send", "text": "two"}, {"type": "edit", "seq": started["seq"], "text": "Hi?"}):
        frame = await program.request(command.pop("type"), **command, **field)
        assert (frame["type"], frame["code"]) == ("error", code)
    assert await in_database(Run.objects.count) == 1
    if "agent" in field:
        assert (await program.request("create", agent="unknown"))["code"] == code
