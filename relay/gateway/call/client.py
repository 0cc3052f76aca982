"""The connection to the client: writing, disconnects, keepalive comments.

Comments, or empty lines, keep proxies and impatient clients from giving up. They are ours, so they stand only between
two events of a stream and are no part of what is recorded. One task waits for the caller to go away; nothing else would
tell us while the model is silent. Calls that are over in a moment never need it, so it begins a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from relay.runtime.per_loop import PerLoop

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
Headers = list[tuple[bytes, bytes]]

COMMENT = b": keepalive\n\n"
# For Google's clients: its SDK takes every line that is not empty for JSON, comments too.
EMPTY_LINE = b"\n"
WATCH_AFTER = 0.05  # at the least; at the most twice that
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class _Patrol:
    """Begins to watch whoever is still there after a moment: one timer for all callers of an event loop."""

    def __init__(self) -> None:
        self.new: dict[Client, Callable[[], None]] = {}
        self.older: dict[Client, Callable[[], None]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, client: Client, when_gone: Callable[[], None]) -> None:
        self.new[client] = when_gone
        if self.timer is None:
            self.timer = self._later()

    def leave(self, client: Client) -> None:
        if self.new.pop(client, None) is None:
            self.older.pop(client, None)

    def _go_round(self) -> None:
        for client, when_gone in self.older.items():
            client.watch_now(when_gone)
        self.older, self.new = self.new, {}
        self.timer = self._later() if self.older else None

    def _later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(WATCH_AFTER, self._go_round)


_patrols = PerLoop(_Patrol)


class Client:
    __slots__ = (
        *("_comment", "_is_busy", "_keepalive", "_last", "_patrol", "_receive", "_send", "_sign", "_tail", "_timer"),
        *("_watch", "has_begun", "is_gone", "loop"),
    )

    def __init__(self, receive: Receive, send: Send) -> None:
        self.is_gone = self.has_begun = False
        self._receive, self._send = receive, send
        self._watch: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._patrol: _Patrol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self._keepalive = self._last = 0.0
        self._is_busy = False
        self._tail, self._sign = b"", COMMENT

    def watch(self, when_gone: Callable[[], None]) -> None:
        """Once the body has been read, the next thing that the server has to say is that the caller has left."""
        self._patrol = _patrols.of(self.loop)
        self._patrol.add(self, when_gone)

    def watch_now(self, when_gone: Callable[[], None]) -> None:
        self._watch = self.loop.create_task(self._wait(when_gone))

    async def begin(self, status: int, headers: Headers, *, keepalive: float = 0, sign: bytes = COMMENT) -> None:
        """`keepalive`: seconds of silence after which a stream of events gets a comment, or that `sign`; 0: none."""
        self.has_begun = True
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})
        if keepalive:
            self._keepalive, self._last, self._sign = keepalive, self.loop.time(), sign
            self._timer = self.loop.call_later(keepalive, self._look)

    async def write(self, chunk: bytes, *, is_last: bool = False) -> None:
        if self._comment is not None:
            await self._comment
        self._is_busy = True
        await self._pass({"type": "http.response.body", "body": chunk, "more_body": not is_last})
        self._is_busy = False
        if self._keepalive:
            self._last = self.loop.time()
            self._tail = chunk[-4:] if len(chunk) >= 4 else (self._tail + chunk)[-4:]

    def cut(self) -> None:
        """End the connection without its proper end, so that nobody takes half a reply for a whole one.

        Most servers do that when an application returns early. Daphne would leave the caller waiting: there `send` can
        do it (`project.server.flow_control`).
        """
        if cut := getattr(self._send, "cut", None):
            cut()

    def close(self) -> None:
        if self._patrol is not None:
            self._patrol.leave(self)
        for waiting in (self._watch, self._timer, self._comment):
            if waiting is not None:
                waiting.cancel()

    async def _wait(self, when_gone: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        when_gone()

    async def _pass(self, message: Any) -> None:
        if self.is_gone:
            return
        try:
            await self._send(message)
        except OSError:  # how some servers say that nobody is there
            self.is_gone = True

    def _look(self) -> None:
        """Due a comment? Only between two events, and only if nothing is just being sent."""
        left = self._last + self._keepalive - self.loop.time()
        if left <= 0 and not self._is_busy and (not self._tail or self._tail.endswith(EVENT_ENDS)):
            self._comment = self.loop.create_task(self._say())
            self._last, left = self.loop.time(), self._keepalive
        self._timer = self.loop.call_later(max(left, 0.05), self._look)

    async def _say(self) -> None:
        try:
            await self._pass({"type": "http.response.body", "body": self._sign, "more_body": True})
        finally:
            self._comment = None
