"""The connection to the client: writing, disconnects, keepalive comments.

Comments, or empty lines, keep proxies and impatient clients from giving up. They are written between two events of a
stream and are not recorded. Only a task that waits for it notices a disconnect while the model is silent. Most calls
are over in a moment and never need it, so it starts a little later.
"""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from relay.runtime.asgi import Headers, Message, Receive, Send
from relay.runtime.event_loop import Deadlines, PerLoop

COMMENT = b": keepalive\n\n"
# For Google's clients: their SDK parses every line that is not empty as JSON, comments too.
EMPTY_LINE = b"\n"
WATCH_AFTER = 0.05  # at least; at most twice that
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


_deadlines = PerLoop(partial(Deadlines, WATCH_AFTER))


@dataclass(slots=True, eq=False)
class Client:
    _receive: Receive
    _send: Send
    loop: AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    is_gone: bool = False
    has_begun: bool = False
    _deadlines: Deadlines | None = None
    _watch_task: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _comment_task: asyncio.Task[None] | None = None
    _keepalive: float = 0.0
    _last: float = 0.0
    _is_writing: bool = False
    _tail: bytes = b""
    _comment: bytes = COMMENT

    def watch(self, on_disconnect: Callable[[], None]) -> None:
        """Call it once the body has been read: the next message of the server is then that the client has left."""
        self._deadlines = _deadlines.of(self.loop)
        begin = partial(self.loop.call_soon, self._watch_now, on_disconnect)
        self._deadlines.add(self, self.loop.time() + WATCH_AFTER, begin)

    def _watch_now(self, on_disconnect: Callable[[], None]) -> None:
        if self._deadlines is not None:  # not closed meanwhile
            self._watch_task = self.loop.create_task(self._wait_for_disconnect(on_disconnect))

    async def send_json(self, status: int, body: bytes, headers: Headers) -> None:
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.begin(status, own + headers)
        await self.write(body, is_last=True)

    async def begin(self, status: int, headers: Headers, *, keepalive: float = 0, allows_comments: bool = True) -> None:
        """A stream of events gets a comment, or an empty line, after `keepalive` seconds of silence; 0 means never."""
        self.has_begun = True
        await self._send_message({"type": "http.response.start", "status": status, "headers": headers})
        if keepalive:
            self._keepalive, self._last = keepalive, self.loop.time()
            self._comment = COMMENT if allows_comments else EMPTY_LINE
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
        if self._deadlines is not None:
            self._deadlines.discard(self)
            self._deadlines = None
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
