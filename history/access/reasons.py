"""Opening somebody else's transcript: for a reason, which its owner can read.

What one may read is for `history.access.permissions` to say. Where the texts are another person's, the reader says why;
that is written to the audit chain and holds for an hour, for this reader and this session. The owner sees who read it,
when and why (`readers_of`). One's own sessions are simply read, also with a key of one's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from history.access import audit
from history.access.permissions import Purpose, Viewer, can_access, can_access_others, find
from history.errors import HistoryError
from history.models import ApiKey, AuditEvent, Session

READ, EXPORTED = "session.read", "session.exported"
ACTIONS = {Purpose.READ: READ, Purpose.EXPORT: EXPORTED}
# Whoever took all of it out may look at it, but not the other way round.
OPENS = {Purpose.READ: (READ, EXPORTED), Purpose.EXPORT: (EXPORTED,)}

HOLDS_FOR = timedelta(hours=1)
SHORTEST, LONGEST = 3, 500


class NotPermitted(HistoryError):
    """They may know of the session, but not do this with it."""


class ReasonNeeded(HistoryError):
    """It is somebody else's: first say why, in 3 to 500 characters. `session` is the first that needs it."""

    def __init__(self, told: str, *, session: UUID | None = None) -> None:
        super().__init__(told)
        self.session = session


def find_opened(
    viewer: Viewer, session_id: UUID | str, *, reason: str = "", purpose: Purpose = Purpose.READ
) -> Session | None:
    """The session, open; None for what they may not even know of, else an error that says what stands in the way."""
    session = find(viewer, session_id, purpose)
    if session is not None:
        open_for_reading(viewer, session, reason=reason, purpose=purpose)
    elif find(viewer, session_id, Purpose.LIST):
        raise NotPermitted(f"no right to {purpose} this session")
    return session


def open_for_reading(viewer: Viewer, session: Session, *, reason: str = "", purpose: Purpose = Purpose.READ) -> None:
    """Whoever comes back from here may be shown the texts (or given them, for EXPORT)."""
    open_each(viewer, [session], reason=reason, purpose=purpose)


def open_each(
    viewer: Viewer, sessions: Iterable[Session], *, reason: str = "", purpose: Purpose = Purpose.READ
) -> None:
    """Several at once, for the same reason: all of them or none."""
    sessions = list(sessions)
    if not all(can_access(viewer, purpose, session) for session in sessions):
        raise NotPermitted(f"no right to {purpose} this session")
    others = [session.pk for session in sessions if not is_own(viewer, session)]
    if others and reason.strip():
        audit.record_each(ACTIONS[purpose], others, reason=check_reason(reason), **_who(viewer))
    elif others:
        known = _events(viewer, others, purpose)
        if shut := next((session for session in others if session not in known), None):
            raise ReasonNeeded(f"say why, in {SHORTEST} to {LONGEST} characters", session=shut)
    for session in sessions:
        session.reveal_title()


def check_reason(reason: str) -> str:
    reason = reason.strip()
    if not SHORTEST <= len(reason) <= LONGEST:
        raise ReasonNeeded(f"a reason has {SHORTEST} to {LONGEST} characters")
    return reason


def readable_without_reason(viewer: Viewer, sessions: Iterable[Session | UUID]) -> set[UUID]:
    """Which of these somebody may be shown without being asked: their own, and those they gave a reason for."""
    ids = {one.pk if isinstance(one, Session) else one for one in sessions}
    if not ids:
        return set()
    own = Session.objects.filter(pk__in=ids, owner_id=person_of(viewer)).values_list("pk", flat=True)
    # A reason lasts no longer than the right that it was given for.
    others = _events(viewer, ids, Purpose.READ) if can_access_others(viewer, Purpose.READ) else set()
    return set(own) | others


def is_own(viewer: Viewer, session: Session) -> bool:
    return session.owner_id == person_of(viewer)


def opened_by_reason(viewer: Viewer, ids: Iterable[UUID] | None) -> set[UUID]:
    """Which of these (None: of all) they gave a reason for within the hour."""
    return _events(viewer, ids, Purpose.READ)


def _events(viewer: Viewer, ids: Iterable[UUID] | None, purpose: Purpose) -> set[UUID]:
    """Those among the sessions that this reader has opened within the hour."""
    since = timezone.now() - HOLDS_FOR
    mine = AuditEvent.objects.filter(Q(**_who(viewer)), action__in=OPENS[purpose], at__gt=since)
    mine = mine if ids is None else mine.filter(session__in=ids)
    return {session for session in mine.values_list("session", flat=True) if session}


def person_of(viewer: Viewer) -> int | None:
    return viewer.owner_id if isinstance(viewer, ApiKey) else viewer.pk


def _who(viewer: Viewer) -> dict[str, Any]:
    return {"key": viewer.pk, "actor": None} if isinstance(viewer, ApiKey) else {"actor": viewer.pk, "key": None}
