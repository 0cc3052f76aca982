"""Group messages to sockets: by session and by user. A message is a preview; the row in the database is the truth."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from channels.layers import get_channel_layer

from relay.runtime.memory_layer import PROCESS_GROUP

CHANGED = {"type": "session.changed"}


@dataclass(slots=True)
class Opened:
    """A session that sockets of this process have open: since when, and when they were last told something of it."""

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
        _opened.setdefault(session_id, Opened(version)).sockets += 1
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
        _persons.setdefault(user_id, Opened(0)).sockets += 1
    await _layer().group_add(person_group(user_id), channel)


async def leave_person(user_id: int, channel: str) -> None:
    with _lock:
        if (opened := _persons.get(user_id)) is not None:
            opened.sockets -= 1
            if opened.sockets <= 0:
                del _persons[user_id]
    await _layer().group_discard(person_group(user_id), channel)


async def enter_process(channel: str) -> None:
    """A socket of this process was accepted. Messages to this group do not leave the process."""
    await _layer().group_add(PROCESS_GROUP, channel)


async def leave_process(channel: str) -> None:
    await _layer().group_discard(PROCESS_GROUP, channel)


def tell_process(message: dict[str, Any]) -> None:
    """All sockets of this process."""
    _layer().send_to_process(message)


def persons_here() -> dict[int, Opened]:
    with _lock:
        return dict(_persons)


def opened_here() -> dict[UUID, Opened]:
    with _lock:
        return dict(_opened)


async def tell_session(session_id: UUID, message: dict[str, Any]) -> None:
    tell_session_from_thread(session_id, message)


async def tell_person(user_id: int, message: dict[str, Any]) -> None:
    tell_person_from_thread(user_id, message)


def sockets_of(session_id: UUID) -> int:
    """How many sockets of this process have it open."""
    opened = _opened.get(session_id)
    return opened.sockets if opened else 0


def tell_session_from_thread(session_id: UUID, message: dict[str, Any]) -> None:
    """Never waits. Without Redis only sockets of this process are notified."""
    if (opened := _opened.get(session_id)) is not None:
        opened.told_at = time.monotonic()
    _tell(session_group(session_id), message)


def have_session_looked_at(session_id: UUID) -> None:
    """Sockets of this process that have it open read it anew. `told_at` stays: no other process was notified."""
    if session_id in _opened:
        _tell(session_group(session_id), CHANGED)


def tell_person_from_thread(user_id: int, message: dict[str, Any]) -> None:
    _tell(person_group(user_id), message)


def is_degraded() -> bool:
    """Whether Redis is configured and away, so that messages of other processes do not arrive."""
    return bool(_layer().is_degraded)


def _tell(group: str, message: dict[str, Any]) -> None:
    """Each message has an id, by which its receivers know that it is the same."""
    _layer().send_to_group(group, {**message, "id": f"{_PROCESS}-{next(_numbers)}"})


def _layer() -> Any:
    return get_channel_layer()
