"""Actions on a session outside of the chat: rename, pin, archive, delete.

The chat has pages open that show it, and may be answering in it just then. The record knows nothing of that, so
other apps subscribe to changes (`listen`, once, when the application starts).
"""

from collections.abc import Callable
from typing import Literal

from history import retention
from history.access.permissions import Viewer
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
    by: Viewer | None = None,
) -> None:
    """None: as it is."""
    if title is not None:
        recorder.rename(session, title=title, by=by)
    if pinned is not None:
        recorder.pin(session, pinned=pinned)
    if archived is not None:
        recorder.archive(session, archived=archived)
    _tell(session, "changed")


def delete(session: Session, *, by: Viewer | None, reason: str = "") -> bool:
    """Into the trash. False when it was there already. Whether `by` may is for `history.access.permissions` to say.

    Owners delete their sessions freely; under hold a session is hidden and kept. Sessions of other users need a
    reason (ReasonNeeded) and no hold (UnderHold). None is the server itself: no reason, but holds apply.
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
