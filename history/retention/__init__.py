"""Retention: the only code that removes anything from the history. docs/retention.md has the rules.

Rows are removed by primary key, a few hundred per transaction. A session is first marked (its state is `removing`) with
an audit event: it is not shown any more, and the next purge finishes an interrupted removal. The audit events are the
only explanation for missing rows that `verification` accepts.

    purging → due (which sessions) → removal (sessions and blobs)
            → trimming (turns and texts of sessions that stay) → turns (where a history may be cut)
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from history.access import audit
from history.access.permissions import Viewer
from history.db.transactions import writing
from history.errors import HistoryError
from history.models import Session
from history.retention import removal
from history.retention.purging import PurgeReport as PurgeReport, purge as purge, purge_due as purge_due


class UnderHold(HistoryError):
    """The session is held: release it first, with a reason."""


class BeingRemoved(HistoryError):
    """The removal of the session has begun; it cannot be restored."""


def hide(session: Session, *, actor: Viewer | None, reason: str = "", even_held: bool = True) -> bool:
    """Move a session to the trash. False if it was not open."""
    seen = Q(state=Session.State.OPEN, **{} if even_held else {"hold": False})
    deleted = {"state": Session.State.DELETED, "hidden_at": timezone.now()}
    with writing():
        hidden = _change(session, "hide", only_if=seen, to=deleted, by=actor, why=reason)
        for below in _opened_from(session) if hidden else ():
            _change(below, "hide", only_if=seen, to=deleted, by=actor, why=reason)
    if not hidden and not even_held and Session.objects.filter(pk=session.pk, hold=True).exists():
        raise UnderHold(f"session {session.pk} is under hold: release it first")
    return hidden


def unhide(session: Session, *, actor: Viewer | None, reason: str = "") -> bool:
    """Restore a session from the trash. False if it was not there."""
    in_the_trash = Q(state=Session.State.DELETED)
    restored = {"state": Session.State.OPEN, "hidden_at": None}
    with writing():
        then = Session.objects.filter(in_the_trash, pk=session.pk).values_list("hidden_at", flat=True).first()
        unhidden = _change(session, "unhide", only_if=in_the_trash, to=restored, by=actor, why=reason)
        for below in _opened_from(session) if unhidden else ():
            _change(below, "unhide", only_if=in_the_trash & Q(hidden_at=then), to=restored, by=actor, why=reason)
    return unhidden or _refuse_when_going(session)


def hold(session: Session, *, actor: Viewer | None, reason: str) -> bool:
    """Keep a session against all policies. False if it is held already."""
    free = Q(hold=False, state__in=Session.WHOLE)
    held = _change(session, "hold", only_if=free, to={"hold": True}, by=actor, why=reason)
    return held or _refuse_when_going(session)


def release(session: Session, *, actor: Viewer | None, reason: str) -> bool:
    """End a hold. The next purge applies the policies. False if it was not held."""
    return _change(session, "release", only_if=Q(hold=True), to={"hold": False}, by=actor, why=reason)


def erase(session: Session, *, actor: Viewer | None, reason: str) -> removal.Removed:
    """Remove a session now. Raises UnderHold for a held one."""
    me = Session.objects.filter(pk=session.pk)
    below = Session.objects.filter(pk__in=[opened.pk for opened in _opened_from(session)])
    ids = removal.mark(me, why="erased", reason=reason, **audit.who(actor))
    # If it is marked, an earlier removal was interrupted. If not, it is held.
    if not ids and me.exists() and not Session.objects.being_removed().filter(pk=session.pk).exists():
        raise UnderHold(f"session {session.pk} is under hold: release it first")
    ids = [session.pk]
    while more := removal.mark(below, why="erased", reason=reason, **audit.who(actor)):
        ids += more
    return sum(removal.finish(ids), removal.Removed())


def _opened_from(session: Session) -> list[Session]:
    found: dict[UUID, Session] = {}
    above = [session.pk]
    while above:
        opened = Session.objects.filter(parent__in=above, owner=session.owner_id).exclude(pk__in=[session.pk, *found])
        fresh = {below.pk: below for below in opened}
        found |= fresh
        above = list(fresh)
    return list(found.values())


def _change(session: Session, action: str, *, only_if: Q, to: dict[str, Any], by: Viewer | None, why: str) -> bool:
    """Change columns if `only_if` holds, with an audit event in the same transaction."""
    with writing():
        if not Session.objects.filter(only_if, pk=session.pk).update(**to, changed_at=timezone.now()):
            return False
        times: dict[str, Any] = {name: at.isoformat() for name, at in to.items() if isinstance(at, datetime)}
        audit.record(action, session=session.pk, reason=why, **audit.who(by), **times)
    for name, value in to.items():
        setattr(session, name, value)
    return True


def _refuse_when_going(session: Session) -> bool:
    """False, unless the session is being removed."""
    if Session.objects.being_removed().filter(pk=session.pk).exists():
        raise BeingRemoved(f"session {session.pk} is being removed")
    return False
