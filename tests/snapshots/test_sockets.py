"""Messages of the sockets: commands and the fields that they read, answers, events, error codes and close codes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as live_settings
from django.db import OperationalError
from django.test import Client

from history.access import keys
from history.access.reasons import NotPermitted, ReasonNeeded
from history.answers.events import ToolCallPiece
from history.errors import HistoryOff, NoSuchBlob, NoSuchEntry
from history.record import recorder
from project.accounts.models import User
from relay.consumers import base
from relay.consumers.actions import Action
from relay.consumers.base import ActionRequest
from relay.consumers.page import ChatConsumer
from relay.consumers.program import ProgramConsumer
from relay.conversation import NotPossible
from relay.errors import AttachmentRefused, BudgetReserved, NoSuchAgent, NoSuchModel, OverAllowance, Unavailable
from relay.routing import sockets
from relay.runtime.async_db import in_database
from tests.factories import create_chat
from tests.relay.conftest import Talk
from tests.snapshots.conftest import Snapshot
from tests.snapshots.shapes import merge_shape

pytestmark = pytest.mark.any_database

DOCS = Path(live_settings.BASE_DIR) / "docs" / "websocket.md"
SUMMARY = "## Goal\nTo weave a long carpet.\n## Next step\nWeave on, row by row."
# One value for every field that any action of a page reads.
FIELDS = {
    "text": "",
    "attachment": [],
    "agent": "",
    "model": "",
    "after": 0,
    "leaf": 1,
    "version": 1,
    "seq": 1,
    "to": 1,
}
RAISED: dict[str, Callable[[], Exception]] = {
    "an agent that does not exist": lambda: NoSuchAgent("none"),
    "a model that does not exist": lambda: NoSuchModel("none"),
    "not possible now": lambda: NotPossible("no"),
    "an entry that is gone": NoSuchEntry,
    "an attachment that is gone": NoSuchBlob,
    "an attachment that is refused": lambda: AttachmentRefused("kind", name="x"),
    "history is off": HistoryOff,
    "over the allowance": lambda: OverAllowance(what="messages_per_minute", until=datetime(2026, 1, 1, tzinfo=UTC)),
    "the rest of the allowance is reserved": lambda: BudgetReserved(what="tokens_per_day"),
    "the server stops": Unavailable,
    "the database is away": lambda: OperationalError("gone"),
    "another user's session without a reason": lambda: ReasonNeeded("why?"),
    "another user's session without the right": NotPermitted,
    "a defect": lambda: RuntimeError("defect"),
}  # fmt: skip


class Program:
    """A client of `/ws/v1/` that keeps every message."""

    def __init__(self, socket: WebsocketCommunicator) -> None:
        self.socket, self.received = socket, list[dict[str, Any]]()

    async def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        request = str(uuid4())
        await self.socket.send_to(json.dumps({"type": kind, "id": request, **fields}))
        return await self.until(lambda frame: frame.get("id") == request or frame["type"] == "error")

    async def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            frame = json.loads(await self.socket.receive_from(timeout=10))
            self.received.append(frame)
            if is_it(frame):
                return dict(frame)

    async def event(self, kind: str, run: str = "") -> dict[str, Any]:
        """Of a run also one that came before the answer to the command."""

        def is_it(frame: dict[str, Any]) -> bool:
            return frame["type"] == kind and (not run or frame["run"] == run)

        received = [frame for frame in self.received if run and is_it(frame)]
        return received[0] if received else await self.until(is_it)

    async def ended(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The end of the run that a command has started."""
        return await self.event("run.ended", answer["run"])


class ReadFields(dict[str, Any]):
    """The fields of a message, which notes those that are read."""

    def __init__(self, fields: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(fields)
        self.read = read

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


@pytest.fixture
def read_fields(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The names of the fields that each command has read."""
    read: dict[str, set[str]] = {}
    parse = ActionRequest.of

    def parse_and_note(document: object, **options: Any) -> ActionRequest:
        request = parse(document, **options)
        return ActionRequest(request.type, ReadFields(request.fields, read.setdefault(request.type, set())))

    monkeypatch.setattr(ActionRequest, "of", parse_and_note)
    monkeypatch.setattr(base, "MAX_MESSAGES", 10_000)
    return read


@asynccontextmanager
async def connected(user: User, *scopes: str, **fields: Any) -> AsyncIterator[Program]:
    key = await in_database(lambda: keys.create(name="program", owner=user, scopes=scopes, **fields))
    socket = WebsocketCommunicator(sockets, "/ws/v1/", headers=[(b"authorization", f"Bearer {key.secret}".encode())])
    assert (await socket.connect(timeout=10))[0]
    program = Program(socket)
    await program.event("welcome")
    yield program
    await socket.disconnect(timeout=10)


async def test_messages_of_the_program_socket_are_as_recorded(
    talk: Talk, read_fields: dict[str, set[str]], snapshot: Snapshot
) -> None:
    async with connected(talk.user, "read", "write", "delete", recording="full", owner_wide=True) as program:
        first_run = await _converse(talk, program)
        await _wait_in_the_queue(talk, program)
        await _summarise(talk, program)
    answers: dict[str, Any] = {}
    for frame in program.received:
        kind = "answers" if frame["type"] in ProgramConsumer.actions else "events"
        answers.setdefault(kind, {}).setdefault(frame["type"], {})
        merge_shape(answers[kind][frame["type"]], frame)
    assert set(answers["answers"]) == set(ProgramConsumer.actions)
    steps = [frame["type"] for frame in program.received if frame.get("run") == first_run and "n" in frame]
    snapshot(
        "socket_v1.json",
        {
            **answers,
            "commands": {name: sorted(read) for name, read in read_fields.items()},
            "order": [kind for kind, _ in groupby(steps)],
        },
    )


async def _converse(talk: Talk, program: Program) -> str:
    """Returns the first run, in which a tool is called."""
    call = ToolCallPiece(part="c", call_id="c", name="current_time", arguments="{}")
    question = ToolCallPiece(part="q", call_id="q", name="ask_user", arguments='{"question": "Which?"}')
    await talk.agent(tools=["current_time", "ask_user"])
    gate = asyncio.Event()
    talk.scripted(
        ["A moment.", call], "Noon.", "One.", "Two.", ["The beginning", gate], "The end.", [question], "So be it."
    )
    await program.request("ping")
    await program.request("history")
    first = await program.request("send", text="How late is it?")
    await program.ended(first)
    edited = await program.request("edit", seq=first["seq"], text="Count.")
    ended = await program.ended(edited)
    await program.ended(await program.request("regenerate", seq=ended["leaf"]))
    running = await program.request("send", text="Tell me.")
    await program.event("run.pieces", running["run"])
    other = (await program.request("create", title="Another"))["session"]["session_id"]
    await program.request("switch", session=first["session_id"])
    await program.request("open", session=other)
    await program.request("open", session=first["session_id"])
    await program.request("stop", run=running["run"])
    await program.ended(running)
    await program.ended(await program.request("continue"))
    ended = await program.ended(await program.request("send", text="Ask me."))
    await program.ended(await program.request("answer", seq=ended["leaf"], call_id="q", text="The second."))
    await program.request("send", text="/help")
    await program.request("fork", seq=edited["seq"])
    await program.request("rename", title="Counting")
    await program.request("history", format="text")
    await program.request("history", count=1)
    await program.request("list", count=1)
    await program.request("list")
    await program.request("rollback", to=first["seq"])
    await program.request("delete")
    await program.request("no such command")
    await program.request("history", session=first["session_id"])
    return str(first["run"])


async def _wait_in_the_queue(talk: Talk, program: Program) -> None:
    gate = asyncio.Event()
    talk.scripted([gate, "One."], "Two.")
    started = await program.request("send", text="First.")
    await program.request("send", text="Second.", after=started["seq"])
    await program.request("send", text="Third.", after=started["seq"])
    waiting = await program.request("queue")
    await program.request("unqueue", queued=waiting["queued"][-1]["queued"])
    await program.request("stop")
    await program.ended(started)
    await program.ended(await program.request("send_queued"))


async def _summarise(talk: Talk, program: Program) -> None:
    talk.scripted(SUMMARY)
    long = ["one row, and then another one " * 30] * 8
    session = await in_database(lambda: create_chat(talk.user, *long))
    await program.request("open", session=str(session.pk))
    ended = await program.ended(await program.request("compress"))
    await program.request("undo_summary", seq=ended["leaf"])


async def test_error_codes_of_the_program_socket_are_as_recorded(
    talk: Talk, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    codes: dict[str, Any] = {}
    monkeypatch.setattr(base, "MAX_MESSAGES", 10_000)
    async with connected(talk.user, "read", "write", recording="full") as program:
        for what, error in RAISED.items():

            async def fail(*_: Any, error: Callable[[], Exception] = error) -> Any:
                raise error()

            monkeypatch.setitem(ProgramConsumer.actions, "ping", Action(fail, needs_session=False))
            codes[what] = _error(await program.request("ping"))
        codes["an unknown command"] = _error(await program.request("fly"))
        codes["a field of the wrong type"] = _error(await program.request("send", text=7))
        codes["an unknown session"] = _error(await program.request("open", session=str(uuid4())))
        codes["the scope delete is missing"] = _error(await program.request("delete"))
        settings.CHAT_HISTORY_ENABLED = False
        codes["a new session while history is off"] = _error(await program.request("create"))
        settings.CHAT_HISTORY_ENABLED = True
    async with connected(talk.user, "read", "write", recording="metadata") as program:
        codes["a key that records no texts"] = _error(await program.request("send", text="Hello"))
    monkeypatch.setattr(base, "MAX_MESSAGES", 1)
    async with connected(talk.user, "read") as program:
        await program.request("list")
        codes["too many commands"] = _error(await program.request("list"))
    snapshot("socket_v1_errors.json", codes)


def _error(frame: dict[str, Any]) -> dict[str, Any]:
    assert frame["type"] == "error"
    assert frame["message"]
    return {name: value for name, value in frame.items() if name not in ("type", "id", "message")}


async def test_actions_of_the_page_socket_are_as_recorded(
    talk: Talk, read_fields: dict[str, set[str]], snapshot: Snapshot
) -> None:
    talk.scripted(*["Hello."] * 5)
    session = await in_database(lambda: create_chat(talk.user, "One?", "One.", "Two?", "Two."))
    page = await _page(talk.user, session.pk)
    for name in sorted(ChatConsumer.actions, key="ping".__eq__):
        await page.send_to(json.dumps({"type": name, **FIELDS}))
    await _until_answered(page)
    await page.disconnect(timeout=10)
    assert set(read_fields) == set(ChatConsumer.actions)
    snapshot("socket_page.json", {name: sorted(read) for name, read in read_fields.items()})


async def _until_answered(page: WebsocketCommunicator) -> None:
    """The pong is the answer to the last action."""
    while "pong" not in str(await page.receive_from(timeout=10)):
        pass


async def _page(user: User, session_id: Any, **headers: str) -> WebsocketCommunicator:
    cookie = await in_database(_cookie, user)
    sent = {"origin": "http://localhost", "host": "localhost", "cookie": cookie, **headers}
    pairs = [(name.encode(), value.encode()) for name, value in sent.items()]
    socket = WebsocketCommunicator(sockets, f"/ws/s/{session_id}/", headers=pairs)
    await socket.connect(timeout=10)
    return socket


def _cookie(user: User) -> str:
    client = Client()
    client.force_login(user)
    name = live_settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"


async def test_close_codes_of_refused_sockets_are_as_recorded(talk: Talk, bob: User, snapshot: Snapshot) -> None:
    session = await in_database(lambda: recorder.start_session(owner=bob))
    found = {
        "program without a key": await _refusal("/ws/v1/"),
        "program with an unknown key": await _refusal("/ws/v1/", authorization="Bearer parley_unknown1_" + "x" * 43),
        "page of another origin": await _refusal(f"/ws/s/{session.pk}/", origin="http://other.example"),
        "page without a sign-in": await _refusal(f"/ws/s/{session.pk}/", origin="http://localhost"),
        "page with a key": await _refusal(f"/ws/s/{session.pk}/", authorization=await _secret(bob)),
        "page of another user's session": await _refusal(
            f"/ws/s/{session.pk}/", origin="http://localhost", cookie=await in_database(_cookie, talk.user)
        ),
        "list without a sign-in": await _refusal("/ws/lists/", origin="http://localhost"),
        "unknown path": await _refusal("/ws/none/", origin="http://localhost"),
    }
    snapshot("socket_close_codes.json", found)


async def _secret(user: User) -> str:
    return f"Bearer {(await in_database(lambda: keys.create(name='key', owner=user, scopes=['read']))).secret}"


async def _refusal(path: str, **headers: str) -> list[Any]:
    """What the server sends until it closes the socket."""
    pairs = [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
    socket = WebsocketCommunicator(sockets, path, headers=pairs)
    await socket.send_input({"type": "websocket.connect"})
    frame = [await socket.receive_output(timeout=10)]
    while frame[-1]["type"] != "websocket.close":
        frame.append(await socket.receive_output(timeout=10))
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait(timeout=10)
    return [one["type"] if one["type"] != "websocket.close" else one["code"] for one in frame]


def test_documented_messages_and_codes_are_as_recorded(snapshot: Snapshot) -> None:
    """The first cells of every table; of commands and events also their fields."""
    tables: dict[str, Any] = {}
    for table in re.findall(r"(?:^\|.*\n)+", DOCS.read_text(encoding="utf-8"), re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for row in rows:
            for name in re.findall(r"`([\w.]+)`", row[0]) or re.findall(r"^\d{4}$", row[0].strip()):
                fields = sorted(set(re.findall(r"`(\w+)", row[1]))) if head[0] == "type" else []
                tables.setdefault(head[0], {})[name] = fields
    snapshot(
        "socket_documented.json", {head: rows for head, rows in tables.items() if head in ("type", "error", "code")}
    )
