"""An upstream that is a bare TCP socket, and providers that call it.

It keeps every request to the byte and answers the bytes that a test gives it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from history.db.process_state import process_state
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, Timeouts
from relay.providers.http import HttpProvider
from tests.servers.processes import wait_for

UPSTREAM_KEY = "sk-upstream-0123456789"


def raw_endpoint(upstream: RawUpstream, **changes: Any) -> Endpoint:
    fields: dict[str, Any] = {
        "name": "bare",
        "dialect": "anthropic-messages",
        "base_url": upstream.url,
        "api_key": UPSTREAM_KEY,
        "key_header": "x-api-key",
        "models": (Model(name="model"),),
        "lists_models": False,
        "timeouts": Timeouts(connect=2, idle=5),
    }
    return Endpoint(**{**fields, **changes})


def use_raw_provider(upstream: RawUpstream, dialect: str, **changes: Any) -> registry.Router:
    """The one provider there is from now on."""
    router = registry.Router([HttpProvider(raw_endpoint(upstream, dialect=dialect, **changes))])
    process_state.set(router)
    return router


HEAD_END = b"\r\n\r\n"


@dataclass
class RawRequest:
    """One request: its first line and headers, its body, and whether the caller left before the end."""

    head: str
    body: bytes
    left: threading.Event = field(default_factory=threading.Event)

    @property
    def line(self) -> str:
        return self.head.split("\r\n", 1)[0]

    @property
    def headers(self) -> dict[str, str]:
        pairs = (line.split(": ", 1) for line in self.head.split("\r\n")[1:] if line)
        return {name.lower(): value for name, value in pairs}


class RawReply:
    """What is answered: pieces, each after the event that it waits for; then the connection ends."""

    def __init__(self, *pieces: bytes | float | threading.Event) -> None:
        self.pieces = pieces


def complete_reply(
    body: bytes, *, status: str = "200 OK", headers: Sequence[str] = ("content-type: application/json",)
) -> RawReply:
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "connection: close"])
    return RawReply(head.encode() + HEAD_END + body)


def streamed_reply(
    *pieces: bytes | float | threading.Event, ends: bool = True, headers: Sequence[str] = ()
) -> RawReply:
    """Server-sent events in chunks. Without an end the connection breaks off."""
    lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", "connection: close"]
    lines += headers
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) if isinstance(piece, bytes) else piece for piece in pieces]
    return RawReply("\r\n".join(lines).encode() + HEAD_END, *chunks, *([b"0\r\n\r\n"] if ends else []))


class RawUpstream:
    def __init__(self) -> None:
        self.heard: list[RawRequest] = []
        self.says: deque[RawReply] = deque()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bare upstream", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, count: int) -> RawRequest:
        wait_for(lambda: len(self.heard) >= count, seconds=10, what=f"request {count}")
        return self.heard[count - 1]

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = server.result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(HEAD_END)).decode("latin-1")
            heard = RawRequest(head=head.removesuffix("\r\n\r\n"), body=b"")
            heard.body = await reader.readexactly(int(heard.headers.get("content-length", 0)))
            said = self.says.popleft() if self.says else complete_reply(b"{}")
            self.heard.append(heard)
            await self._say(said, heard, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _say(
        self, said: RawReply, heard: RawRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        gone = asyncio.ensure_future(reader.read(1))
        for piece in said.pieces:
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
                continue
            waited = asyncio.ensure_future(
                asyncio.sleep(piece) if isinstance(piece, float) else asyncio.to_thread(piece.wait, 10)
            )
            await asyncio.wait([waited, gone], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                heard.left.set()
                return
        gone.cancel()
