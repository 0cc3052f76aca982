"""Messages to the sockets of a session, of a user and of this process.

A message is a preview; the row in the database is the truth. Sending never waits and works from any thread. Without
Redis only sockets of this process are reached.
"""

import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from channels.layers import get_channel_layer

from relay.runtime.async_db import Admission, current_admission
from relay.runtime.memory_layer import Message

SESSION_CHANGED: Message = {"type": "session.changed"}


@dataclass(slots=True)
class OpenSession:
    """A session that sockets of this process have open: since when, and when they were last sent a message."""

    version: int
    sockets: int = 0
    at: float = field(default_factory=time.monotonic)
    sent_at: float = 0.0


_PROCESS, _numbers = uuid4().hex, count()
_sessions: dict[UUID, OpenSession] = {}
_lock = threading.Lock()


@lru_cache(maxsize=4_096)  # the text of a UUID took 3 % of the CPU while answers are streamed
def session_group(session_id: UUID | str) -> str:
    return f"session.{session_id}"


def user_group(user_id: int) -> str:
    return f"person.{user_id}"


async def join_session(session_id: UUID, channel: str, *, version: int) -> None:
    """A socket opens this session and shows it as it was at `version`."""
    with _lock:
        _sessions.setdefault(session_id, OpenSession(version)).sockets += 1
    await _layer().group_add(session_group(session_id), channel)


async def leave_session(session_id: UUID, channel: str) -> None:
    with _lock:
        if (session := _sessions.get(session_id)) is not None:
            session.sockets -= 1
            if session.sockets <= 0:
                del _sessions[session_id]
    await _layer().group_discard(session_group(session_id), channel)


def local_sessions() -> dict[UUID, OpenSession]:
    with _lock:
        return dict(_sessions)


def count_local_sockets(session_id: UUID) -> int:
    session = _sessions.get(session_id)
    return session.sockets if session else 0


def notify_session(session_id: UUID) -> None:
    """Sockets that have this session open read it again."""
    send_to_session(session_id, SESSION_CHANGED)


def notify_sidebar(user_id: int, session_id: UUID) -> None:
    """Pages of this user read one session of their lists again."""
    send_to_user(user_id, {"type": "sidebar.changed", "session": str(session_id)})


def send_to_session(session_id: UUID, message: Message) -> None:
    if (session := _sessions.get(session_id)) is not None:
        session.sent_at = time.monotonic()
    _send(session_group(session_id), message)


def admission_of(message: Message) -> Admission | None:
    """None for messages of other processes, which have numbers of their own."""
    return message.get("admission") if message.get("id", "").startswith(_PROCESS) else None


def send_to_user(user_id: int, message: Message) -> None:
    _send(user_group(user_id), message)


def send_to_process(message: Message) -> None:
    _layer().send_to_process(message)


def refresh_local_sockets(session_id: UUID) -> None:
    """Sockets of this process read the session again. `sent_at` stays, because no other process is notified."""
    if session_id in _sessions:
        _send(session_group(session_id), SESSION_CHANGED)


def is_degraded() -> bool:
    """Whether Redis is configured and away, so that messages of other processes do not arrive."""
    return bool(_layer().is_degraded)


def _send(group: str, message: Message) -> None:
    """Each message has an id, by which its receivers share the work that it causes (`run_once`).

    That work has the admission of the request that changed something. A socket handles one message at a time, so every
    message has it.
    """
    message = {**message, "id": f"{_PROCESS}-{next(_numbers)}"}
    if (admission := current_admission()) is not None:
        message["admission"] = admission
    _layer().send_to_group(group, message)


def _layer() -> Any:
    return get_channel_layer()
