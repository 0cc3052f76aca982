"""Parts of sockets: close codes, a queue of what is not sent yet, and calls that several pages share.

The output queue of a socket is bounded in bytes: a client that does not read is dropped, not buffered. `Outbox.send`
never waits, so a consumer continues with its other work while a slow client reads. A task passes the messages on to the
server and waits for it (`project.server.flow_control` makes Daphne wait, too). What is not sent yet is counted. Over
the limit `ReaderTooSlow` is raised, everything unsent is dropped, and only a close frame is still accepted.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError
from django.utils import timezone

logger = logging.getLogger(__name__)

# Close codes, listed in docs/websocket.md. Daphne can send only 1000 and 3000 to 4999.
# After these, connecting again does not help.
NOT_SIGNED_IN, NOT_ALLOWED, NOT_FOUND = 4401, 4403, 4404
# After these it does. 4011 to 4013 mean what 1011 to 1013 mean.
TOO_SLOW, FAILED, RESTARTING, UNAVAILABLE = 4008, 4011, 4012, 4013
# A single message may be larger: it is accepted as long as what waits before it is below this.
MOST_UNSENT_BYTES = 1_000_000
# How long the last messages may take, and the close frame of a client that does not read.
LAST_SECONDS, SLOW_SECONDS = 3.0, 60.0
DATABASE_AWAY = (OperationalError, InterfaceError)
# How long the result of a call is shared by pages that need it because of the same message.
CACHE_SECONDS = 2.0

T = TypeVar("T")
_shared_calls: dict[Hashable, asyncio.Future[Any]] = {}


class ReaderTooSlow(Exception):
    """The client has not read what was sent, and too much is waiting."""


class Outbox:
    def __init__(self, send: Any) -> None:
        self._server_send = send
        self._messages: deque[tuple[dict[str, Any], int]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.unsent_bytes = 0
        self.is_too_slow = False
        self.is_gone = False

    async def send(self, message: Any) -> None:
        """ASGI's `send` for a consumer."""
        if self.is_gone:
            return
        is_content = message["type"] == "websocket.send"
        if is_content and (self.is_too_slow or self.unsent_bytes > MOST_UNSENT_BYTES):
            self.is_too_slow = True
            self._messages.clear()
            raise ReaderTooSlow
        size = sys.getsizeof(message.get("text")) if is_content else 0
        self.unsent_bytes += size
        self._messages.append((message, size))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._pass_on())

    async def finish(self) -> None:
        """Wait for what is not sent yet, for a while."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=SLOW_SECONDS if self.is_too_slow else LAST_SECONDS)
            self._task.cancel()

    async def _pass_on(self) -> None:
        try:
            while self._messages:
                message, size = self._messages.popleft()
                await self._server_send(message)
                self.unsent_bytes -= size
        except Exception as error:  # noqa: BLE001 - each server has its own; nearly all mean that the client is gone
            logger.debug("A socket closed during a send: %s", error)
            self.is_gone = True
            self._messages.clear()
            # A client that is still there connects again and reads what it missed. It must not wait for ever.
            with suppress(Exception):
                await self._server_send({"type": "websocket.close", "code": FAILED})


async def run_once(key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
    """Run a call that many pages need because of the same message once, for the first of them."""
    if key not in _shared_calls:
        _shared_calls[key] = asyncio.ensure_future(call())
        asyncio.get_running_loop().call_later(CACHE_SECONDS, _shared_calls.pop, key, None)
    result: T = await asyncio.shield(_shared_calls[key])
    return result


def connection_info(scope: Any) -> dict[str, Any]:
    """Address and time of the connection, stored with each call that is made for it."""
    peer = scope.get("client") or ("", 0)
    return {"address": str(peer[0]), "connected_at": timezone.now().isoformat()}
