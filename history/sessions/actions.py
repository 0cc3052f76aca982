"""Actions on a session outside of the chat: rename, pin, archive, delete.

The chat connects to the signal: it updates open pages and stops running answers.
"""

from django.dispatch import Signal

from history import retention
from history.access.permissions import Viewer
from history.access.reasons import check_reason, is_own
from history.models import Session
from history.record import recorder

session_changed = Signal()  # receivers get the `session` and `what`: changed, deleting or deleted


def change(
    session: Session, *, title: str | None = None, pinned: bool | None = None, archived: bool | None = None
) -> None:
    """None leaves a value unchanged."""
    if title is not None:
        recorder.rename(session, title=title)
    if pinned is not None:
        recorder.pin(session, pinned=pinned)
    if archived is not None:
        recorder.archive(session, archived=archived)
    session_changed.send(Session, session=session, what="changed")


def delete(session: Session, *, by: Viewer | None, reason: str = "") -> bool:
    """Move a session to the trash. False if it is there already. Callers check the permission.

    Owners delete their sessions freely; under hold a session is hidden and kept. Sessions of other users need a
    reason (ReasonNeeded) and no hold (UnderHold). None is the server itself: no reason, but holds apply.
    """
    is_theirs = by is not None and is_own(by, session)
    if by is not None and not is_theirs:
        reason = check_reason(reason)
    if session.hold and not is_theirs:
        raise retention.UnderHold(f"session {session.pk} is under hold: release it first")
    session_changed.send(Session, session=session, what="deleting")
    is_hidden = retention.hide(session, actor=by, reason=reason, even_held=is_theirs)
    session_changed.send(Session, session=session, what="deleted")
    return is_hidden
