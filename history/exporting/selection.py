"""Selection of the sessions to export, limited to what the viewer may export and what changed since a cursor.

The ids are listed once, sixteen bytes each. The sessions are read in batches during the export under the same
permissions, so that sessions deleted in the meantime are left out.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from history.access import audit
from history.access.permissions import Purpose, Reach, Viewer, reach_of, sessions_for, visible_sessions
from history.access.reasons import NotPermitted, check_reason, open_each, person_of
from history.db.transactions import writing
from history.errors import HistoryError
from history.models import AuditEvent, Exchange, Session
from history.search import SessionQuery

START = "start"
NOT_A_CURSOR = "not a valid cursor: use the cursor at the end of an export, or 'start'"
CLOCK_SKEW = timedelta(seconds=10)  # between the clocks of several machines on one PostgreSQL

_OLDEST = """
SELECT min(xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Changes at this moment or later, and deletions after this event, are new."""

    at: datetime | None = None
    event: int = 0

    def __str__(self) -> str:
        at = "0" if self.at is None else self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return f"{at}~{self.event}"


@dataclass(frozen=True, slots=True)
class ExportCursor:
    """Position of incremental exports: a moment, and a place in the audit chain for deletions.

    The moment is before the oldest transaction that was running when the cursor was made, so every later change has a
    later time. Numbers would not do: PostgreSQL assigns them in one order and makes them visible in another. A change
    just before the moment may be exported twice. The cursor of an interrupted export also has the last session
    (`after`) and the end of the first attempt (`ends`), so that a download can be resumed.
    """

    since: ChangePoint = ChangePoint()
    ends: ChangePoint | None = None
    after: UUID | None = None  # the session to resume after

    def __str__(self) -> str:
        return str(self.since) if self.ends is None else f"{self.since}~{self.ends}~{self.after or ''}"

    @classmethod
    def parse(cls, text: str) -> "ExportCursor":
        """Parse the text of a cursor. Raises ValueError."""
        if text == START:
            return cls()
        parts = text.split("~")
        if len(parts) == 2:
            return cls(_parse_change_point(*parts))
        if len(parts) != 5:
            raise ValueError(NOT_A_CURSOR)
        return cls(
            _parse_change_point(*parts[:2]), _parse_change_point(*parts[2:4]), UUID(parts[4]) if parts[4] else None
        )


def _parse_change_point(at: str, event: str) -> ChangePoint:
    try:
        moment = None if at == "0" else datetime.fromisoformat(at).astimezone(UTC)
        return ChangePoint(moment, int(event))
    except (ValueError, OverflowError):
        raise ValueError(NOT_A_CURSOR) from None


def horizon() -> ChangePoint:
    """The moment before which no change can become visible any more."""
    event = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    if connection.vendor != "postgresql":
        with writing():  # SQLite has one writer at a time
            return ChangePoint(timezone.now(), event)
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        oldest: datetime | None = cursor.fetchone()[0]
    return ChangePoint(min(oldest or now, now) - CLOCK_SKEW, event)


BATCH = 50
MOST_NAMED = 5_000
EVENT_PAGE = 500
DELETING = ("hide", "remove")
RIGHTS = ("owner", "api_key", "hold", "state", "expires_at")  # columns that decide who may open a session


class CannotExport(HistoryError):
    """The request is invalid; the text says what to write instead."""


class NothingSelected(CannotExport):
    """A named session does not exist, or the viewer may not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All sessions that the viewer may export, or fewer: named sessions, own sessions, filters."""

    sessions: tuple[UUID, ...] | None = None
    mine: bool = False
    filters: SessionQuery = field(default_factory=SessionQuery)


class ChosenSessions:
    """The ids of an export, fixed when it begins. Viewer None is the operator, who may export all."""

    def __init__(self, viewer: Viewer | None, selection: Selection, *, cursor: ExportCursor, reason: str) -> None:
        self.viewer, self.selection, self.reason = viewer, selection, check_reason(reason) if reason.strip() else ""
        self.owner_id = None if viewer is None else person_of(viewer)
        if len(selection.sessions or ()) > MOST_NAMED:
            raise CannotExport(f"name at most {MOST_NAMED:,} sessions, or use filters")
        rows = selection.filters.apply(self._exportable())
        if selection.mine:
            rows = rows.filter(owner_id=self.owner_id)
        if selection.sessions is not None:
            rows = rows.filter(pk__in=selection.sessions)
        if cursor.since.at is not None:
            rows = rows.filter(changed_at__gte=cursor.since.at)
        if cursor.after is not None:
            rows = rows.filter(pk__gt=cursor.after)
        ids = rows.order_by("pk").values_list("pk", flat=True).iterator(chunk_size=2_000)
        self._ids = b"".join(pk.bytes for pk in ids)
        self._check_named_sessions()
        if not self.reason:  # without one, sessions of other users must have been opened before
            for batch in self._batches():
                self._open(list(self._exportable().filter(pk__in=batch).only(*RIGHTS)))

    def __len__(self) -> int:
        return len(self._ids) // 16

    def __iter__(self) -> Iterator[Session]:
        """The sessions as they are now, each opened with the reason."""
        for batch in self._batches():
            rows = self._exportable().filter(pk__in=batch).select_related("owner", "api_key")
            has_exchanges = Exists(Exchange.objects.filter(session=OuterRef("pk")))
            sessions = list(rows.annotate(has_exchanges=has_exchanges).order_by("pk"))
            if self.reason:
                self._open(sessions)
            yield from sessions

    @property
    def is_everything(self) -> bool:
        return self.selection == Selection() and self._reach() == Reach()

    def only(self) -> Session | None:
        return Session.objects.filter(pk=UUID(bytes=self._ids)).first() if len(self) == 1 else None

    def record_event(self, **details: Any) -> None:
        audit.record("export", reason=self.reason, count=len(self), **audit.who(self.viewer), **details)

    def loose_exchanges(self, *, since: datetime | None) -> QuerySet[Exchange]:
        """Exchanges without a session. They belong to exports that are narrowed by owner at most."""
        selection, reach = self.selection, self._reach()
        if reach is None or selection.sessions is not None or selection.filters != SessionQuery():
            return Exchange.objects.none()
        rows = Exchange.objects.filter(reach.as_q(), session=None)
        if selection.mine:
            rows = rows.filter(owner_id=self.owner_id)
        return rows if since is None else rows.filter(ended_at__gte=since)

    def deleted(self, *, since: ChangePoint, until: ChangePoint) -> Iterator[tuple[UUID, datetime]]:
        """Each session deleted since an earlier export, with its last deletion; no restored ones. No filter applies."""
        if since.at is None or (reach := self._reach()) is None:
            return
        events = AuditEvent.objects.filter(seq__gt=since.event, seq__lte=until.event, action__in=DELETING)
        walk = events.exclude(session=None).order_by("seq").iterator(chunk_size=EVENT_PAGE)
        while page := list(islice(walk, EVENT_PAGE)):
            last = {event.session: event for event in page if event.session}
            there = {row.pk: row for row in Session.objects.filter(pk__in=last).only("owner", "api_key")}
            served = set(self._exportable().filter(pk__in=last).values_list("pk", flat=True))
            for gone, event in last.items():
                if (row := there.get(gone)) is not None:
                    owner, key = row.owner_id, row.api_key_id
                else:  # its row is gone, but the event of the removal has them
                    details = json.loads(event.details or "{}")
                    owner, key = details.get("owner"), details.get("by_key")
                is_reached = reach.owner_id in (None, owner) and reach.api_key_id in (None, key)
                is_named = self.selection.sessions is None or gone in self.selection.sessions
                is_own = not self.selection.mine or owner == self.owner_id
                if gone not in served and is_reached and is_named and is_own:
                    yield gone, event.at

    def _reach(self) -> Reach | None:
        return Reach() if self.viewer is None else reach_of(self.viewer, Purpose.EXPORT)

    def _exportable(self) -> QuerySet[Session]:
        if self.viewer is None:
            return visible_sessions(Reach(), sees_held=True, moment=timezone.now())
        return sessions_for(self.viewer, Purpose.EXPORT)

    def _open(self, sessions: Sequence[Session]) -> None:
        if self.viewer is not None:
            open_each(self.viewer, sessions, reason=self.reason, purpose=Purpose.EXPORT)

    def _batches(self) -> Iterator[list[UUID]]:
        for start in range(0, len(self._ids), 16 * BATCH):
            batch = self._ids[start : start + 16 * BATCH]
            yield [UUID(bytes=batch[place : place + 16]) for place in range(0, len(batch), 16)]

    def _check_named_sessions(self) -> None:
        """Raise where a named session is missing or not permitted; a cursor may have left it out."""
        wanted = set(self.selection.sessions or ())
        missing = wanted - set(self._exportable().filter(pk__in=wanted).values_list("pk", flat=True))
        if not missing:
            return
        if self.viewer is not None and sessions_for(self.viewer, Purpose.LIST).filter(pk__in=missing).exists():
            raise NotPermitted("no permission to export this session")
        raise NothingSelected(f"there is no session {sorted(map(str, missing))[0]}")
