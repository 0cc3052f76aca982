"""The connection to the client: writing, disconnects, keepalive comments.

Comments, or empty lines, keep proxies and impatient clients from giving up. They are written between two events of a
stream and are not recorded. One task waits for the client to disconnect; nothing else reports that while the model is
silent. Most calls are over in a moment and never need it, so it starts a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.runtime.asgi import Headers, Message, Receive, Send
from relay.runtime.event_loop import PerLoop

COMMENT = b": keepalive\n\n"
# For Google's clients: their SDK parses every line that is not empty as JSON, comments too.
EMPTY_LINE = b"\n"
WATCH_AFTER = 0.05  # at least; at most twice that
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class _WatchTimer:
    """Starts to watch clients that are still connected after a moment: one timer for all of an event loop."""

    def __init__(self) -> None:
        self.new: dict[Client, Callable[[], None]] = {}
        self.older: dict[Client, Callable[[], None]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, client: Client, on_disconnect: Callable[[], None]) -> None:
        self.new[client] = on_disconnect
        if self.timer is None:
            self._schedule()

    def discard(self, client: Client) -> None:
        if self.new.pop(client, None) is None:
            self.older.pop(client, None)

    def _start_watching(self) -> None:
        for client, on_disconnect in self.older.items():
            client.watch_now(on_disconnect)
        self.older, self.new, self.timer = self.new, {}, None
        if self.older:
            self._schedule()

    def _schedule(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._start_watching)


_timers = PerLoop(_WatchTimer)


class Client:
    __slots__ = (
        *("_comment", "_comment_task", "_is_writing", "_keepalive", "_last", "_receive", "_send", "_tail", "_timer"),
        *("_watch_task", "_watch_timer", "has_begun", "is_gone", "loop"),
    )

    def __init__(self, receive: Receive, send: Send) -> None:
        self.is_gone = self.has_begun = False
        self._receive, self._send = receive, send
        self._watch_task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._watch_timer: _WatchTimer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._comment_task: asyncio.Task[None] | None = None
        self._keepalive = self._last = 0.0
        self._is_writing = False
        self._tail, self._comment = b"", COMMENT

    def watch(self, on_disconnect: Callable[[], None]) -> None:
        """Call it once the body has been read: the next message of the server is then that the client has left."""
        self._watch_timer = _timers.of(self.loop)
        self._watch_timer.add(self, on_disconnect)

    def watch_now(self, on_disconnect: Callable[[], None]) -> None:
        self._watch_task = self.loop.create_task(self._wait_for_disconnect(on_disconnect))

    async def begin(self, status: int, headers: Headers, *, keepalive: float = 0, comment: bytes = COMMENT) -> None:
        """A stream of events gets a `comment` after `keepalive` seconds of silence; 0 means never."""
        self.has_begun = True
        await self._send_message({"type": "http.response.start", "status": status, "headers": headers})
        if keepalive:
            self._keepalive, self._last, self._comment = keepalive, self.loop.time(), comment
            self._timer = self.loop.call_later(keepalive, self._check_silence)

    async def write(self, chunk: bytes, *, is_last: bool = False) -> None:
        if self._comment_task is not None:
            await self._comment_task
        self._is_writing = True
        await self._send_message({"type": "http.response.body", "body": chunk, "more_body": not is_last})
        self._is_writing = False
        if self._keepalive:
            self._last = self.loop.time()
            self._tail = chunk[-4:] if len(chunk) >= 4 else (self._tail + chunk)[-4:]

    def cut(self) -> None:
        """End the connection without its proper end, so that the client does not take half a reply for a whole one.

        Most servers do that when an application returns early. Daphne would leave the client waiting: there `send` has
        a method for it (`project.server.flow_control`).
        """
        if cut := getattr(self._send, "cut", None):
            cut()

    def close(self) -> None:
        if self._watch_timer is not None:
            self._watch_timer.discard(self)
        for waiting in (self._watch_task, self._timer, self._comment_task):
            if waiting is not None:
                waiting.cancel()

    async def _wait_for_disconnect(self, on_disconnect: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        on_disconnect()

    async def _send_message(self, message: Message) -> None:
        if self.is_gone:
            return
        try:
            await self._send(message)
        except OSError:  # some servers report a disconnect like this
            self.is_gone = True

    def _check_silence(self) -> None:
        """Send a comment if it is due, the last event is complete and nothing is being sent."""
        left = self._last + self._keepalive - self.loop.time()
        if left <= 0 and not self._is_writing and (not self._tail or self._tail.endswith(EVENT_ENDS)):
            self._comment_task = self.loop.create_task(self._send_comment())
            self._last, left = self.loop.time(), self._keepalive
        self._timer = self.loop.call_later(max(left, 0.05), self._check_silence)

    async def _send_comment(self) -> None:
        try:
            await self._send_message({"type": "http.response.body", "body": self._comment, "more_body": True})
        finally:
            self._comment_task = None
