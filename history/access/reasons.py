"""Reasons for reading other users' sessions, titles that are hidden until one is given, and the access log.

A reason lasts one hour, for one reader and one session. Users and keys read their own sessions without one.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django import forms
from django.contrib.auth import get_user_model
from django.db.models import Max, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access import audit
from history.access.permissions import Purpose, Viewer, can_access, can_access_others, find
from history.db.transactions import writing
from history.errors import HistoryError
from history.models import ApiKey, AuditEvent, Session

READ, EXPORTED = "session.read", "session.exported"
ACTIONS = {Purpose.READ: READ, Purpose.EXPORT: EXPORTED}
# Users who exported a session may read it, but not the other way round.
OPENS = {Purpose.READ: (READ, EXPORTED), Purpose.EXPORT: (EXPORTED,)}

HOLDS_FOR = timedelta(hours=1)
SHORTEST, LONGEST = 3, 500


class NotPermitted(HistoryError):
    """The viewer may list the session, but not do this with it."""


class ReasonNeeded(HistoryError):
    """Another user's session needs a reason of 3 to 500 characters. `session` is the first that does."""

    def __init__(self, text: str, *, session: UUID | None = None) -> None:
        super().__init__(text)
        self.session = session


def find_opened(viewer: Viewer, session_id: UUID | str, *, reason: str = "") -> Session | None:
    """The session, opened for reading. None if the viewer may not list it, else an error with the obstacle."""
    session = find(viewer, session_id, Purpose.READ)
    if session is not None:
        open_for_reading(viewer, session, reason=reason)
    elif find(viewer, session_id, Purpose.LIST):
        raise NotPermitted("no permission to read this session")
    return session


def open_for_reading(viewer: Viewer, session: Session, *, reason: str = "", purpose: Purpose = Purpose.READ) -> None:
    """Check permission and reason. Afterwards the texts may be shown (or exported, for EXPORT)."""
    open_each(viewer, [session], reason=reason, purpose=purpose)


def open_each(
    viewer: Viewer, sessions: Sequence[Session], *, reason: str = "", purpose: Purpose = Purpose.READ
) -> None:
    """Open several sessions for the same reason: all of them or none."""
    if not all(can_access(viewer, purpose, session) for session in sessions):
        raise NotPermitted(f"no permission to {purpose} this session")
    others = [session.pk for session in sessions if not is_own(viewer, session)]
    if others and reason.strip():
        audit.record_each(ACTIONS[purpose], others, reason=check_reason(reason), **audit.who(viewer))
    elif others:
        known = _events(viewer, others, purpose)
        if shut := next((session for session in others if session not in known), None):
            raise ReasonNeeded(f"give a reason of {SHORTEST} to {LONGEST} characters", session=shut)
    for session in sessions:
        session.reveal_title()


def check_reason(reason: str) -> str:
    reason = reason.strip()
    if not SHORTEST <= len(reason) <= LONGEST:
        raise ReasonNeeded(f"a reason must have {SHORTEST} to {LONGEST} characters")
    return reason


def readable_without_reason(viewer: Viewer, ids: Collection[UUID]) -> set[UUID]:
    """Sessions whose texts the viewer may see now: their own, and those with a reason."""
    if not ids:
        return set()
    own = Session.objects.filter(pk__in=ids, owner_id=person_of(viewer)).values_list("pk", flat=True)
    # A reason ends with the permission that it was given for.
    others = _events(viewer, ids, Purpose.READ) if can_access_others(viewer, Purpose.READ) else set()
    return set(own) | others


def is_own(viewer: Viewer, session: Session) -> bool:
    return session.owner_id == person_of(viewer)


def _events(viewer: Viewer, ids: Iterable[UUID] | None, purpose: Purpose) -> set[UUID]:
    """Those of these sessions (None means all) that this reader has opened within the hour."""
    since = timezone.now() - HOLDS_FOR
    mine = AuditEvent.objects.filter(Q(**audit.who(viewer)), action__in=OPENS[purpose], at__gt=since)
    mine = mine if ids is None else mine.filter(session__in=ids)
    return {session for session in mine.values_list("session", flat=True) if session}


def person_of(viewer: Viewer) -> int | None:
    return viewer.owner_id if isinstance(viewer, ApiKey) else viewer.pk


@dataclass(frozen=True)
class TitleRule:
    """The title policy of `SessionQuerySet` for one viewer."""

    viewer: Viewer

    def hide(self, sessions: Sequence[Session]) -> None:
        person = person_of(self.viewer)
        others = [session for session in sessions if session.owner_id != person]
        shown = self._opened([session.pk for session in others])
        for session in others:
            if session.pk not in shown:
                session.hide_title()

    def visible(self) -> Q:
        """Sessions whose titles may be searched."""
        return Q(owner_id=person_of(self.viewer)) | Q(pk__in=self._opened(None))

    def _opened(self, ids: Sequence[UUID] | None) -> set[UUID]:
        if ids == [] or not can_access_others(self.viewer, Purpose.READ):
            return set()
        return _events(self.viewer, ids, Purpose.READ)


_reason_box = forms.Textarea(attrs={"rows": 3})
ReasonField = partial(forms.CharField, min_length=SHORTEST, max_length=LONGEST, widget=_reason_box)


LOGGED = (READ, EXPORTED, "share", "unshare", "view_shared")
MOST_LOGGED = 20


class AccessRecord(NamedTuple):
    """An access by others, as the owner sees it; holds are not shown. `who` is empty for visitors with a share link."""

    at: datetime
    action: str
    who: str
    reason: str

    @property
    def words(self) -> str:
        words = {
            READ: _("%(who)s read this session"),
            EXPORTED: _("%(who)s exported this session"),
            "share": _("%(who)s created a share link"),
            "unshare": _("%(who)s revoked a share link"),
            "view_shared": _("A share link was opened"),
        }
        return words[self.action] % {"who": self.who}


def who_read(session: Session) -> tuple[AccessRecord, ...]:
    events = list(AuditEvent.objects.filter(session=session.pk, action__in=LOGGED).order_by("-seq")[:MOST_LOGGED])
    names = _names(events)
    return tuple(AccessRecord(one.at, one.action, names[one.actor, one.key], one.reason) for one in events)


def unseen_readers(session: Session) -> tuple[str, ...]:
    """Names of users who read or exported the session since its owner last looked, the newest first."""
    read = AuditEvent.objects.filter(session=session.pk, action__in=(READ, EXPORTED), seq__gt=session.readings_seen)
    events = list(read.order_by("-seq")[:MOST_LOGGED])
    names = _names(events)
    return tuple(dict.fromkeys(names[event.actor, event.key] for event in events))


def mark_readings_seen(session: Session) -> None:
    newest = AuditEvent.objects.filter(session=session.pk).aggregate(newest=Max("seq"))["newest"] or 0
    with writing():
        Session.objects.filter(pk=session.pk).update(readings_seen=newest, changed_at=timezone.now())
    session.readings_seen = newest


def _names(events: Sequence[AuditEvent]) -> dict[tuple[int | None, int | None], str]:
    who = {(event.actor, event.key) for event in events}
    people = get_user_model().objects.in_bulk([actor for actor, _key in who if actor])
    keys = ApiKey.objects.select_related("owner").in_bulk([key for _actor, key in who if key])
    names: dict[tuple[int | None, int | None], str] = {(pk, None): str(person) for pk, person in people.items()}
    for pk, key in keys.items():
        name = _("The key %(prefix)s of %(owner)s") % {"prefix": key.prefix, "owner": key.owner}
        names |= {(actor, pk): name for actor, other in who if other == pk}
    return {one: names.get(one, _("Deleted user")) for one in who}
