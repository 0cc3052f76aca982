"""Base classes of all sockets: one message at a time, membership in groups, bounded output, and a clean end.

Channels lets a consumer look after its database connections at every message, by way of a thread. Ours ask the database
through `relay.runtime.async_db`, which looks after its own, so a frame costs no thread.

A socket never ends without a close frame: whatever fails in it, its code says whether connecting again helps. Where the
database is away, the socket stays open and reads what it missed as soon as the database is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NoReturn, TypeVar, cast
from uuid import UUID

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from history.record import counters
from relay.consumers.outbox import FAILED, Outbox, ReaderTooSlow
from relay.live import groups, sign_outs
from relay.live.sign_outs import SignIn

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Close codes, listed in docs/websocket.md. Daphne can send only 1000 and 3000 to 4999.
# After these, connecting again does not help.
NOT_SIGNED_IN, NOT_ALLOWED, NOT_FOUND = 4401, 4403, 4404
# After these it does. 4011 to 4013 mean what 1011 to 1013 mean.
TOO_SLOW, RESTARTING, UNAVAILABLE = 4008, 4012, 4013
# How often a socket looks for itself while an answer is written by a process that we do not hear.
POLL_SECONDS = 1.0
# How long it waits for a frame that went missing between processes: by then what it said has been noted.
GAP_SECONDS = 0.35
# How long a socket waits until it reads again what it could not read while the database was away.
RETRY_SECONDS = 1.0
CACHE_SECONDS = 2.0
# How long closing all sockets of this process may take.
CLOSE_SECONDS = 3.0
KEY_NOT_ALLOWED = "This socket is for browser pages. Use /ws/v1/ with an API key."
DATABASE_AWAY = (OperationalError, InterfaceError)

_shared_calls: dict[Hashable, asyncio.Future[Any]] = {}
_open: set[Socket] = set()


class Socket(AsyncWebsocketConsumer):
    outbox: Outbox
    is_accepted = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turn = asyncio.Lock()
        self.has_ended = asyncio.Event()
        self.sessions: set[UUID] = set()
        self._polling: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        counters.now["sockets"] += 1
        self.outbox = Outbox(send)
        _open.add(self)
        try:
            await super().__call__(scope, receive, self.outbox.send)
        finally:
            counters.now["sockets"] -= 1
            await self.release()
            await self.outbox.finish()
            _open.discard(self)
            self.has_ended.set()

    async def accept(self, subprotocol: str | None = None, headers: Any = None) -> None:
        await super().accept(subprotocol, headers)
        self.is_accepted = True
        await groups.join_process(self.channel_name)

    async def release(self) -> None:
        """Release everything, for whichever reason the socket ended."""
        self.stop_polling()
        if self._retrying is not None:
            self._retrying.cancel()
        if self.is_accepted:
            await groups.leave_process(self.channel_name)
        for session_id in list(self.sessions):
            await self.close_group(session_id)

    async def dispatch(self, message: Any) -> None:
        """Handle one message at a time, also while another task looks for missed frames."""
        try:
            async with self.turn:
                await getattr(self, get_handler_name(message))(message)
        except StopConsumer:
            raise
        except ReaderTooSlow:
            logger.info("A socket was closed because its client does not read.")
            await self.end(TOO_SLOW)
        except DATABASE_AWAY as error:
            if message["type"] == "websocket.connect":
                await self.end(UNAVAILABLE)
            logger.warning("A socket reads again later, because the database is away: %s", type(error).__name__)
            self.resync_later()
        except Exception:
            logger.exception("A socket failed.")
            await self.end(FAILED)

    async def end(self, code: int) -> NoReturn:
        """Close with a code, also where the socket was not accepted yet: of a refusal browsers see 1006, as offline."""
        if not self.is_accepted:
            await self.accept()
        await self.close(code)
        raise StopConsumer

    # What the channel layer sends to every socket of this process.

    async def resync(self, message: dict[str, Any]) -> None:
        """Messages were missed: read the state from the database."""

    async def degraded_changed(self, message: dict[str, Any]) -> None:
        """Redis has gone or come back."""

    async def server_stopping(self, message: dict[str, Any]) -> None:
        await self.end(RESTARTING)

    def resync_later(self) -> None:
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.get_running_loop().create_task(self._resync_until_read())

    async def _resync_until_read(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with self.turn:
                    return await self.resync({"type": "resync"})
            except DATABASE_AWAY:
                continue

    # Groups.

    async def open_group(self, session_id: UUID, *, version: int) -> None:
        self.sessions.add(session_id)
        await groups.join_session(session_id, self.channel_name, version=version)

    async def close_group(self, session_id: UUID) -> None:
        self.sessions.discard(session_id)
        await groups.leave_session(session_id, self.channel_name)

    def start_polling(self, poll: Callable[[], Awaitable[None]]) -> None:
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(cast(Any, poll()))

    def stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None


class PageSocket(Socket):
    """The socket of a browser page: it ends with the sign-in of its user."""

    sign_in: SignIn

    async def connect(self) -> None:
        """Refuse API keys, which have no sign-in. Accept first: a browser gets no code of a refused handshake."""
        if "session" not in self.scope:
            await self.accept()
            await self.close(NOT_ALLOWED, reason=KEY_NOT_ALLOWED)
        else:
            await self.connect_page(self.scope["user"])

    async def connect_page(self, user: Any) -> None:
        """Accept or close the socket of this user, who may be anonymous."""
        raise NotImplementedError

    async def join_as(self, user: Any) -> None:
        self.sign_in = sign_outs.sign_in_of(user, self.scope)
        sign_outs.register(self.sign_in)
        await groups.join_user(user.pk, self.channel_name)

    async def release(self) -> None:
        if hasattr(self, "sign_in"):
            sign_outs.unregister(self.sign_in)
            await groups.leave_user(self.sign_in.user_id, self.channel_name)
        await super().release()

    async def signed_out(self, message: dict[str, Any]) -> None:
        """The user has signed out: the page may be in front of another person now."""
        if message["sign_in"] == self.sign_in.name:
            await self.close(NOT_SIGNED_IN)
            raise StopConsumer


async def close_all() -> None:
    """Close every socket of this process, after it has got what was sent to it before."""
    ended = [asyncio.ensure_future(socket.has_ended.wait()) for socket in _open]
    groups.send_to_process({"type": "server.stopping"})
    if ended:
        _, late = await asyncio.wait(ended, timeout=CLOSE_SECONDS)
        for one in late:
            one.cancel()


async def run_once(key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
    """What many sockets want to know because of one and the same message is asked by the first of them."""
    if key not in _shared_calls:
        _shared_calls[key] = asyncio.ensure_future(ask())
        asyncio.get_running_loop().call_later(CACHE_SECONDS, _shared_calls.pop, key, None)
    found: T = await asyncio.shield(_shared_calls[key])
    return found


def connection_info(scope: Any) -> dict[str, Any]:
    """Address and time of the connection, stored with each call that is made for it."""
    peer = scope.get("client") or ("", 0)
    return {"address": str(peer[0]), "connected_at": timezone.now().isoformat()}
