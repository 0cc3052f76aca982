"""Clients of the REST API, of `manage.py history` and of the relay, which runs on a real port of the test process.

The client of the relay sends exactly the bytes it is given and keeps exactly the bytes it receives.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvicorn
from django.core.management import call_command
from django.test import Client

from history.access import keys
from history.db.process_state import process_state
from relay.gateway import application as gateway, recording, routes
from relay.gateway.journal.reader import read
from relay.gateway.journal.records import CallAccepted, CallEnded, Record, ReplyBytes
from relay.gateway.journal.writer import Journal
from relay.gateway.references import continuations, ownership
from relay.providers import connections
from relay.usage import counters, redis_counters
from tests.servers.databases import close_connections
from tests.servers.processes import wait_for

HISTORY = "/api/history"


def create_secret(owner: Any, *scopes: str, **fields: Any) -> str:
    return keys.create(name="test", owner=owner, scopes=scopes or ("read",), **fields).secret


class ApiClient:
    """Paths are below /api/history; answers come as (status, JSON)."""

    def __init__(self, who: Any = None, *, key: str = "") -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        if who is not None:
            self.client.force_login(who)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        path = path.removeprefix("http://testserver")  # links to other pages are absolute
        address = path if path.startswith("/api") else f"{HISTORY}{path}"
        sent = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None:
            return self.client.generic(method, address, headers=sent)
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.client.generic(method, address, content, content_type="application/json", headers=sent)

    def get(self, path: str, **headers: str) -> Any:
        response = self.call("GET", path, **headers)
        assert response.status_code == 200, response.content
        return response.json()

    def refused(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and code of an error, which has the one form that errors have."""
        response = self.call(method, path, body, **headers)
        assert response["Content-Type"].startswith("application/json"), response.content
        told = response.json()
        assert set(told) == {"error"}, told
        assert set(told["error"]) <= {"code", "message", "fields"}
        assert told["error"]["message"]
        return response.status_code, told["error"]["code"]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Lines(StringIO):
    """Keeps what was written, a line each, although the command fails."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def write(self, text: str) -> int:
        self.lines += text.splitlines()
        return len(text)


def run_history(*arguments: Any, out: StringIO | None = None) -> tuple[str, str]:
    out, err = out or StringIO(), StringIO()
    call_command("history", *map(str, arguments), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def run_history_json(*arguments: Any) -> Any:
    return json.loads(run_history(*arguments, "--json")[0])


HI_BODY: dict[str, Any] = {"model": "model", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
GEMINI_BODY = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
# Of every language: an address, and the smallest request.
SMALLEST_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic-messages": ("/v1/messages", HI_BODY),
    "openai-chat": ("/v1/chat/completions", HI_BODY),
    "openai-responses": ("/v1/responses", {"model": "model", "input": "hi", "max_output_tokens": 9}),
    "gemini-generate": ("/v1beta/models/model:generateContent", GEMINI_BODY),
}


class OpenReply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.response = response
        self.is_cut = False

    def read(self) -> bytes:
        """All of it, or as much as came before the connection broke."""
        try:
            return self.response.read()
        except http.client.IncompleteRead as error:
            self.is_cut = True
            return error.partial


@contextmanager
def open_reply(
    relay: RunningRelay, path: str, body: bytes = b"", *, method: str = "POST", headers: Mapping[str, str] | None = None
) -> Iterator[OpenReply]:
    """Inside it, the reply is still on its way."""
    connection = http.client.HTTPConnection(urlsplit(relay.url).netloc, timeout=60)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
        yield OpenReply(connection.getresponse())
    finally:
        connection.close()


class Reply:
    """A reply that has been read."""

    def __init__(self, answered: OpenReply) -> None:
        self.status, self.headers = answered.status, answered.headers
        self.body = answered.read()
        self.is_cut = answered.is_cut

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send_request(
    relay: RunningRelay, path: str, body: bytes | Mapping[str, Any] = b"", *, method: str = "POST", **headers: str
) -> Reply:
    """`x_api_key="…"` is the header x-api-key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    with open_reply(relay, path, sent, method=method, headers=named) as answered:
        return Reply(answered)


R = TypeVar("R", bound=Record)


class RunningRelay:
    """Where it listens, and what its journal says."""

    def __init__(self, port: int, journal: Journal) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.journal = journal

    def ended(self, count: int = 1) -> list[CallEnded]:
        """Once so many calls have ended."""
        wait_for(lambda: len(self._of(CallEnded)) >= count, seconds=10, what=f"the end of call {count}")
        return self._of(CallEnded)

    def accepted(self) -> list[CallAccepted]:
        return self._of(CallAccepted)

    def replied(self) -> bytes:
        """What came back, whether it was written in pieces or with the end."""
        pieces = [
            record.data if isinstance(record, ReplyBytes) else record.reply
            for _, record in read(self.journal.folder)
            if isinstance(record, ReplyBytes | CallEnded)
        ]
        return b"".join(pieces)

    def _of(self, kind: type[R]) -> list[R]:
        return [record for _, record in read(self.journal.folder) if isinstance(record, kind)]


@contextmanager
def run_relay() -> Iterator[RunningRelay]:
    recording.close_journal()
    server = QuickServer(uvicorn.Config(_application, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, name="relay", daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, seconds=10, what="the relay listening")
        yield RunningRelay(server.servers[0].sockets[0].getsockname()[1], recording.journal())
    finally:
        server.should_exit = True
        thread.join(10)
        close_connections()
        process_state.reset(
            counters.UsageCounters, continuations.ContinuationMemory, ownership.IssuedIdCache, routes.Cooldowns, Journal
        )


async def _application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await gateway.application(scope, receive, send)
        return
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await connections.close()
            await redis_counters.close()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


NAP = 0.005
SHUTDOWN_SECONDS = 1.0


class QuickServer(uvicorn.Server):
    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(NAP)

    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        state, end = self.server_state, time.monotonic() + SHUTDOWN_SECONDS
        for connection in list(state.connections):
            connection.shutdown()
        while (state.connections or state.tasks) and time.monotonic() < end:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(NAP)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()
