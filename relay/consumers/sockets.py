"""What pages and programs have in common: one thing at a time, a place in some groups, and a clean end.

Channels lets a consumer look after its database connections at every message, by way of a thread. Ours ask the database
through `relay.database`, which looks after its own, so a frame costs no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast
from uuid import UUID

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import timezone

from history import counters
from relay import broadcast, signed_in
from relay.signed_in import SignIn

T = TypeVar("T")
# Close codes after which connecting again does not help. docs/websocket.md lists all.
NOT_SIGNED_IN, NOT_ALLOWED, NOT_FOUND = 4401, 4403, 4404
# How often a socket looks for itself while an answer is written by a process that we do not hear.
LOOK_SECONDS = 1.0
# How long it waits for a frame that went missing between processes: by then what it said has been noted.
GAP_SECONDS = 0.35
REMEMBERED_SECONDS = 2.0
WITH_A_KEY = "This socket is for browser pages. Use /ws/v1/ with an API key."

_asked: dict[Hashable, asyncio.Future[Any]] = {}


class Socket(AsyncWebsocketConsumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turn = asyncio.Lock()
        self.sessions: set[UUID] = set()
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        counters.now["sockets"] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            counters.now["sockets"] -= 1
            await self.gone()

    async def gone(self) -> None:
        """However it came to its end."""
        self.stop_looking()
        for session_id in list(self.sessions):
            await self.leave(session_id)

    async def dispatch(self, message: Any) -> None:
        """One thing at a time, also while we look for what we did not hear."""
        async with self.turn:
            await getattr(self, get_handler_name(message))(message)

    async def enter(self, session_id: UUID, *, version: int) -> None:
        self.sessions.add(session_id)
        await broadcast.enter(session_id, self.channel_name, version=version)

    async def leave(self, session_id: UUID) -> None:
        self.sessions.discard(session_id)
        await broadcast.leave(session_id, self.channel_name)

    def start_looking(self, look: Callable[[], Awaitable[None]]) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(cast(Any, look()))

    def stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None


class PersonSocket(Socket):
    """A page of somebody who is signed in: it hears what concerns them, and is shown nothing once they have left."""

    sign_in: SignIn

    async def connect(self) -> None:
        """Refuse API keys, which have no sign-in. Accept first: a browser is told no code of a refused handshake."""
        if "session" not in self.scope:
            await self.accept()
            await self.close(NOT_ALLOWED, reason=WITH_A_KEY)
        else:
            await self.connect_page(self.scope["user"])

    async def connect_page(self, user: Any) -> None:
        """Accept or close the socket of this user, who may be anonymous."""
        raise NotImplementedError

    async def enter_as(self, user: Any) -> None:
        self.sign_in = signed_in.sign_in_of(user, self.scope)
        signed_in.enter(self.sign_in)
        await broadcast.enter_person(user.pk, self.channel_name)

    async def gone(self) -> None:
        if hasattr(self, "sign_in"):
            signed_in.leave(self.sign_in)
            await broadcast.leave_person(self.sign_in.user_id, self.channel_name)
        await super().gone()

    async def signed_out(self, message: dict[str, Any]) -> None:
        """Whoever sits there now is not who opened this page; what comes from here on is not for them."""
        if message["sign_in"] == self.sign_in.name:
            await self.close(NOT_SIGNED_IN)
            raise StopConsumer


async def asked_once(key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
    """What many sockets want to know because of one and the same message is asked by the first of them."""
    if key not in _asked:
        _asked[key] = asyncio.ensure_future(ask())
        asyncio.get_running_loop().call_later(REMEMBERED_SECONDS, _asked.pop, key, None)
    found: T = await asyncio.shield(_asked[key])
    return found


def client_of(scope: Any) -> dict[str, Any]:
    """Who is connected from where, since when: kept with each call that is made for them."""
    peer = scope.get("client") or ("", 0)
    return {"address": str(peer[0]), "connected_at": timezone.now().isoformat()}
