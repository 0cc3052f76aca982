"""Who is told what: groups of the channel layer. A message here is a preview; the row in the database is the truth."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings

logger = logging.getLogger(__name__)

CHANGED = {"type": "session.changed"}


@dataclass(slots=True)
class Opened:
    """A session that sockets of this process have open: since when, and when they were last told something of it."""

    loop: asyncio.AbstractEventLoop
    version: int
    sockets: int = 0
    at: float = field(default_factory=time.monotonic)
    told_at: float = 0.0


_PROCESS, _numbers = uuid4().hex, count()
_opened: dict[UUID, Opened] = {}
_persons: dict[int, Opened] = {}  # whose pages are open here; the version says nothing
_lock = threading.Lock()


def session_group(session_id: UUID | str) -> str:
    """Everybody who has this conversation open."""
    return f"session.{session_id}"


def person_group(user_id: int) -> str:
    """Every page that this person has open."""
    return f"person.{user_id}"


async def enter(session_id: UUID, channel: str, *, version: int) -> None:
    """A socket has this session open from now on, and knows it as it was at that version."""
    with _lock:
        _opened.setdefault(session_id, Opened(asyncio.get_running_loop(), version)).sockets += 1
    await _layer().group_add(session_group(session_id), channel)


async def leave(session_id: UUID, channel: str) -> None:
    with _lock:
        if (opened := _opened.get(session_id)) is not None:
            opened.sockets -= 1
            if opened.sockets <= 0:
                del _opened[session_id]
    await _layer().group_discard(session_group(session_id), channel)


async def enter_person(user_id: int, channel: str) -> None:
    """A page of this person is open from now on."""
    with _lock:
        _persons.setdefault(user_id, Opened(asyncio.get_running_loop(), 0)).sockets += 1
    await _layer().group_add(person_group(user_id), channel)


async def leave_person(user_id: int, channel: str) -> None:
    with _lock:
        if (opened := _persons.get(user_id)) is not None:
            opened.sockets -= 1
            if opened.sockets <= 0:
                del _persons[user_id]
    await _layer().group_discard(person_group(user_id), channel)


def persons_here() -> dict[int, Opened]:
    with _lock:
        return dict(_persons)


def opened_here() -> dict[UUID, Opened]:
    with _lock:
        return dict(_opened)


async def tell_session(session_id: UUID, message: dict[str, Any]) -> None:
    if (opened := _opened.get(session_id)) is not None:
        opened.told_at = time.monotonic()
    await _tell(session_group(session_id), message)


async def tell_person(user_id: int, message: dict[str, Any]) -> None:
    await _tell(person_group(user_id), message)


def sockets_of(session_id: UUID) -> int:
    """How many sockets of this process have it open."""
    opened = _opened.get(session_id)
    return opened.sockets if opened else 0


def tell_session_from_thread(session_id: UUID, message: dict[str, Any]) -> None:
    """For those who have no loop. Without Redis only sockets of this process can be told, in the loop they live in."""
    if settings.REDIS_URL:
        async_to_sync(tell_session)(session_id, message)
    elif (opened := _opened.get(session_id)) is not None:
        asyncio.run_coroutine_threadsafe(tell_session(session_id, message), opened.loop)


def have_session_looked_at(session_id: UUID) -> None:
    """Sockets of this process that have it open are to look; nobody else was told anything, so nothing is noted."""
    if (opened := _opened.get(session_id)) is not None:
        asyncio.run_coroutine_threadsafe(_tell(session_group(session_id), CHANGED), opened.loop)


def tell_person_from_thread(user_id: int, message: dict[str, Any]) -> None:
    if settings.REDIS_URL:
        async_to_sync(tell_person)(user_id, message)
    elif (opened := _persons.get(user_id)) is not None:
        asyncio.run_coroutine_threadsafe(tell_person(user_id, message), opened.loop)


async def _tell(group: str, message: dict[str, Any]) -> None:
    """A layer that is away must not end an answer: pages then catch up from the database.

    Each message has a name of its own, by which those who get it know that it is the same.
    """
    try:
        await _layer().group_send(group, {**message, "id": f"{_PROCESS}-{next(_numbers)}"})
    except Exception as error:  # noqa: BLE001 - every layer has errors of its own; all mean that nobody was told
        logger.warning("The channel layer did not take a message: %s", type(error).__name__)


def _layer() -> Any:
    return get_channel_layer()
