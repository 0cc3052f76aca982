"""The one bin: everything that is ever removed from the history is removed here.

What goes, and when:

- An owner's delete *hides* a session. It is gone at once for the owner, keys, search and export, can be brought back,
  and is removed for good after PARLEY_TRASH_HOURS. *Erasing* skips the trash. Sessions that were opened from it (agents
  that an agent called, subagents of a program) go the same way and come back with it.
- A session *expires* some days after its last activity: by the rule of its source, or what its key says instead.
  Expiry follows the rules of today: a purge first brings the stored times in line with them.
- Keys may have a cap on sessions: those with the oldest activity go.
- A cap on messages *trims*: the oldest whole turns of a session go, never the last one, and an anchor with their seal
  stays behind, so that what is left can still be verified.
- An age for texts *drops* them: an entry keeps its place, times and counts, its digest and its seal; the text, its
  salt, its search rows and its blobs go.
- Blobs that nobody refers to go an hour after they were stored, a fork whose copy was broken off an hour after its last
  batch.
- A *hold* stands above all of it: a held session neither expires nor is trimmed, dropped or erased.

How it goes: by primary key, a few hundred rows at a time, every batch a short transaction. Nothing is read into memory
but numbers. A session that is to be removed is first marked (`REMOVAL_STARTED` in `hidden_at`), in the transaction that
tells the audit chain; from then on nobody is served it, and a purge that is interrupted anywhere is finished by the
next. Trimming is a row of small whole trims. Every removal is an audit event, and `verification` believes no other
explanation for something that is missing.

    purging → due (which sessions) → removal (those that go), leftovers (blobs), and for those that stay
              trimming (turns) and dropping (texts) → plans → turns (where a history may be cut)
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from history.access import audit
from history.db.transactions import writing
from history.errors import HistoryError
from history.models import COPY_UNFINISHED, ApiKey, Session
from history.retention import removal
from history.retention.purging import PurgeReport as PurgeReport
from history.retention.purging import purge as purge
from history.retention.purging import purge_due as purge_due


class UnderHold(HistoryError):
    """The session is held: release it first, with a reason."""


class BeingRemoved(HistoryError):
    """The removal of the session has begun; it cannot be brought back."""


def hide(session: Session, *, actor: Any, reason: str = "", even_held: bool = True) -> bool:
    """The owner's delete. False when it was hidden already."""
    seen = Q(hidden_at=None) if even_held else Q(hidden_at=None, hold=False)
    now = timezone.now()
    with writing():
        hidden = _change(session, "hide", only_if=seen, to={"hidden_at": now}, by=actor, why=reason)
        for below in _opened_from(session) if hidden else ():
            _change(below, "hide", only_if=seen, to={"hidden_at": now}, by=actor, why=reason)
    if not hidden and not even_held and Session.objects.filter(pk=session.pk, hold=True).exists():
        raise UnderHold(f"session {session.pk} is under hold: release it first")
    return hidden


def unhide(session: Session, *, actor: Any, reason: str = "") -> bool:
    """Undo a delete, as long as the session lies in the trash. False when it was not hidden."""
    in_the_trash = Q(hidden_at__gt=COPY_UNFINISHED)
    with writing():
        then = Session.objects.filter(in_the_trash, pk=session.pk).values_list("hidden_at", flat=True).first()
        unhidden = _change(session, "unhide", only_if=in_the_trash, to={"hidden_at": None}, by=actor, why=reason)
        for below in _opened_from(session) if unhidden else ():
            _change(below, "unhide", only_if=Q(hidden_at=then), to={"hidden_at": None}, by=actor, why=reason)
    return unhidden or _refuse_when_going(session)


def hold(session: Session, *, actor: Any, reason: str) -> bool:
    """Keep a session whatever the rules say. False when it is held already."""
    free = Q(hold=False) & (Q(hidden_at=None) | Q(hidden_at__gt=COPY_UNFINISHED))
    return _change(session, "hold", only_if=free, to={"hold": True}, by=actor, why=reason) or _refuse_when_going(
        session
    )


def release(session: Session, *, actor: Any, reason: str) -> bool:
    """Let the rules apply again; what they ask for happens at the next purge. False when it was not held."""
    return _change(session, "release", only_if=Q(hold=True), to={"hold": False}, by=actor, why=reason)


def erase(session: Session, *, actor: Any, reason: str) -> removal.Removed:
    """Remove a session for good, now. A hold is not overruled."""
    me = Session.objects.filter(pk=session.pk)
    below = Session.objects.filter(pk__in=[opened.pk for opened in _opened_from(session)])
    ids = removal.mark(me, why="erased", reason=reason, **_who(actor))
    # Whoever removes it already may have stopped half-way. One that is not marked was held just now.
    if not ids and me.exists() and not removal.sessions_being_removed().filter(pk=session.pk).exists():
        raise UnderHold(f"session {session.pk} is under hold: release it first")
    ids = [session.pk]
    while more := removal.mark(below, why="erased", reason=reason, **_who(actor)):
        ids += more
    return sum(removal.finish(ids), removal.Removed())


def _opened_from(session: Session) -> list[Session]:
    """The owner's sessions that agents and programs opened from this one, from those, and so on."""
    found: dict[UUID, Session] = {}
    above = [session.pk]
    while above:
        opened = Session.objects.filter(parent__in=above, owner=session.owner_id).exclude(pk__in=[session.pk, *found])
        fresh = {below.pk: below for below in opened}
        found |= fresh
        above = list(fresh)
    return list(found.values())


def _change(session: Session, action: str, *, only_if: Q, to: dict[str, Any], by: Any, why: str) -> bool:
    """One column, decided by the row count; what happened is told to the audit chain in the same transaction."""
    with writing():
        changed = Session.objects.filter(only_if, pk=session.pk).update(**to, changed_at=timezone.now())
        if changed:
            times: dict[str, Any] = {
                name: moment.isoformat() for name, moment in to.items() if isinstance(moment, datetime)
            }
            audit.record(action, session=session.pk, reason=why, **_who(by), **times)
    for name, value in to.items():
        if changed:
            setattr(session, name, value)
    return bool(changed)


def _refuse_when_going(session: Session) -> bool:
    """False, if nothing was changed for another reason."""
    if removal.sessions_being_removed().filter(pk=session.pk).exists():
        raise BeingRemoved(f"session {session.pk} is being removed")
    return False


def _who(actor: Any) -> dict[str, int | None]:
    """The ids of a person, or of a key; None is the house itself."""
    if isinstance(actor, ApiKey):
        return {"key": actor.pk}
    return {"actor": actor.pk if actor is not None else None}
