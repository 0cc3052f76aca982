"""What is changed of a session from outside of the chat: its title and marks, or that it goes.

The chat has pages open that show it, and may be answering in it just then. The record knows nothing of that, so
whoever wants to hear of a change says so (`listen`, once, when the application starts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from history import retention
from history.access.reasons import check_reason, is_own
from history.models import Session
from history.record import recorder

What = Literal["changed", "deleting", "deleted"]
Listener = Callable[[Session, What], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    if listener not in _listeners:
        _listeners.append(listener)


def change(
    session: Session,
    *,
    title: str | None = None,
    pinned: bool | None = None,
    archived: bool | None = None,
    by: Any = None,
) -> None:
    """None: as it is."""
    if title is not None:
        recorder.rename(session, title=title, by=by)
    if pinned is not None:
        recorder.pin(session, pinned=pinned)
    if archived is not None:
        recorder.archive(session, archived=archived)
    _tell(session, "changed")


def delete(session: Session, *, by: Any, reason: str = "") -> bool:
    """Into the trash. False when it was there already. Whether `by` may is for `history.access.permissions` to say.

    One's own goes as one likes; under hold it is hidden, and kept. Somebody else's goes for a reason (ReasonNeeded),
    and under hold not at all (UnderHold). The house itself, None, has its reasons and keeps to holds.
    """
    is_theirs = by is not None and is_own(by, session)
    if by is not None and not is_theirs:
        reason = check_reason(reason)
    if session.hold and not is_theirs:
        raise retention.UnderHold(f"session {session.pk} is under hold: release it first")
    _tell(session, "deleting")
    is_hidden = retention.hide(session, actor=by, reason=reason, even_held=is_theirs)
    _tell(session, "deleted")
    return is_hidden


def _tell(session: Session, what: What) -> None:
    for listener in _listeners:
        listener(session, what)
