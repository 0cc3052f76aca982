"""The life of a socket: its messages one at a time, missed frames, and its end.

Channels lets a consumer look after its database connections at every message, by way of a thread. Ours ask the database
through `relay.runtime.async_db`, which looks after its own, so a frame costs no thread.

A socket never ends without a close frame: its code says whether connecting again helps. While the
database is away, the socket stays open and reads what it missed as soon as the database is back.
"""

import asyncio
import logging
from contextlib import nullcontext
from typing import Any, NoReturn
from uuid import UUID

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer

from history.record import counters
from relay.consumers.base import DATABASE_AWAY, CloseCode, Outbox, SideTasks, SlowClient
from relay.live import groups, sign_outs
from relay.live.sign_outs import SignIn
from relay.models import User
from relay.runtime.async_db import admitted
from relay.runtime.memory_layer import PROCESS_GROUP, Message

logger = logging.getLogger(__name__)

# How long a socket waits for a frame of another process that is missing: by then that process has noted its text.
GAP_SECONDS = 0.35
# How long a socket waits until it reads again what it could not read while the database was away.
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 3.0
KEY_NOT_ALLOWED = "This socket is for browser pages. Use /ws/v1/ with an API key."
_open: "set[Socket]" = set()


class Socket(AsyncWebsocketConsumer):
    """One message at a time. Subclasses handle them, and say whether they miss frames."""

    outbox: Outbox
    is_accepted = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turn = asyncio.Lock()
        self.has_ended = asyncio.Event()
        self.sessions: set[UUID] = set()
        self.side_tasks = SideTasks()

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

    async def dispatch(self, message: Message) -> None:
        """Handle one message at a time, also while another task looks for missed frames."""
        try:
            admission = groups.admission_of(message)
            async with self.turn:
                with admitted(admission) if admission is not None else nullcontext():
                    await getattr(self, get_handler_name(message))(message)
                if self.has_gap():
                    self.side_tasks.start(self._fill_gap)
        except StopConsumer:
            raise
        except SlowClient:
            logger.info("A socket was closed because its client does not read.")
            await self.end(CloseCode.TOO_SLOW)
        except DATABASE_AWAY as error:
            if message["type"] == "websocket.connect":
                await self.end(CloseCode.UNAVAILABLE)
            logger.warning("A socket retries later, because the database is not available: %s", type(error).__name__)
            self.side_tasks.start(self._resync_until_read)
        except Exception:
            logger.exception("A socket failed.")
            await self.end(CloseCode.FAILED)

    async def accept(self, subprotocol: str | None = None, headers: Any = None) -> None:
        await super().accept(subprotocol, headers)
        self.is_accepted = True
        await self.channel_layer.group_add(PROCESS_GROUP, self.channel_name)

    async def release(self) -> None:
        self.side_tasks.cancel()
        if self.is_accepted:
            await self.channel_layer.group_discard(PROCESS_GROUP, self.channel_name)
        for session_id in list(self.sessions):
            await self.close_group(session_id)

    async def end(self, code: int) -> NoReturn:
        """Close with a code, also where the socket was not accepted yet: of a refusal browsers see 1006, as offline."""
        if not self.is_accepted:
            await self.accept()
        await self.close(code)
        raise StopConsumer

    async def open_group(self, session_id: UUID, *, version: int) -> None:
        self.sessions.add(session_id)
        await groups.join_session(session_id, self.channel_name, version=version)

    async def close_group(self, session_id: UUID) -> None:
        self.sessions.discard(session_id)
        await groups.leave_session(session_id, self.channel_name)

    # What the channel layer sends to every socket of this process.

    async def resync(self, message: Message) -> None:
        """Messages were missed: read the state from the database."""

    async def degraded_changed(self, message: Message) -> None:
        """Redis has gone or come back."""

    async def server_stopping(self, message: Message) -> None:
        await self.end(CloseCode.RESTARTING)

    async def _resync_until_read(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with self.turn:
                    return await self.resync({"type": "resync"})
            except DATABASE_AWAY:
                continue

    # Frames of another process are noted in its database four times a second, so a gap is filled from there a little
    # later. A gap in the frames of this process is filled at once.

    def has_gap(self) -> bool:
        return False

    async def fill_gap(self) -> None:
        """Read from the database what the missing frames contained."""

    async def _fill_gap(self) -> None:
        while self.has_gap():
            await asyncio.sleep(GAP_SECONDS)
            async with self.turn:
                if self.has_gap():
                    await self.fill_gap()


class PageSocket(Socket):
    """The socket of a browser page: it ends with the sign-in of its user."""

    sign_in: SignIn

    async def connect(self) -> None:
        """Refuse API keys, which have no sign-in. Accept first: a browser gets no code of a refused handshake."""
        if "session" not in self.scope:
            await self.accept()
            await self.close(CloseCode.NOT_ALLOWED, reason=KEY_NOT_ALLOWED)
            return
        user: Any = self.scope["user"]
        if not user.is_authenticated:
            await self.end(CloseCode.NOT_SIGNED_IN)
        self.sign_in = sign_outs.register(user, self.scope)
        await self.channel_layer.group_add(groups.user_group(user.pk), self.channel_name)
        await self.connect_page(user)

    async def connect_page(self, user: User) -> None:
        """Accept or close the socket of this signed-in user."""
        raise NotImplementedError

    async def release(self) -> None:
        if hasattr(self, "sign_in"):
            sign_outs.unregister(self.sign_in)
            await self.channel_layer.group_discard(groups.user_group(self.sign_in.user_id), self.channel_name)
        await super().release()

    async def signed_out(self, message: Message) -> None:
        """The user has signed out: the page may be in front of another person now."""
        if message["sign_in"] == self.sign_in.name:
            await self.close(CloseCode.NOT_SIGNED_IN)
            raise StopConsumer


class ListConsumer(PageSocket):
    """The socket of a page that shows a list of sessions and no conversation.

    It sends the id of a session that has changed. The page reads its list again as it read it first, so only one place
    decides what its user may see.
    """

    async def connect_page(self, user: User) -> None:
        await self.accept()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """The page sends nothing."""

    async def sidebar_changed(self, message: Message) -> None:
        await self.send(text_data=message["session"])

    async def resync(self, message: Message) -> None:
        """Any session may have changed."""
        await self.send(text_data="*")


async def close_all() -> None:
    """Close every socket of this process, after it has got what was sent to it before."""
    ended = [asyncio.ensure_future(socket.has_ended.wait()) for socket in _open]
    groups.send_to_process({"type": "server.stopping"})
    if ended:
        _, late = await asyncio.wait(ended, timeout=CLOSE_SECONDS)
        for one in late:
            one.cancel()
