"""Selection of the sessions to export, limited to what the viewer may export.

The ids are listed once, in order, sixteen bytes each. The sessions are read in batches during the export under the same
rule, so that sessions deleted in the meantime are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from history.access import audit
from history.access.permissions import (
    Purpose,
    Reach,
    Viewer,
    can_access_others,
    reach_of,
    sessions_for,
    visible_sessions,
)
from history.access.reasons import NotPermitted, check_reason, open_each
from history.errors import HistoryError
from history.exporting.cursors import ExportCursor, Mark
from history.models import ApiKey, AuditEvent, Exchange, Session
from history.record.listing import ListFilters

BATCH = 50
MOST_NAMED = 5_000
EVENT_PAGE = 500
DELETING = ("hide", "remove")


class CannotExport(HistoryError):
    """What was asked for makes no sense; the text says what to write instead."""


class NothingSelected(CannotExport):
    """A session was named that is not there, or not for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All sessions that the viewer may export, or fewer: named sessions, own sessions, filters."""

    sessions: tuple[UUID, ...] | None = None
    mine: bool = False
    filters: ListFilters = field(default_factory=ListFilters)

    @property
    def is_everything(self) -> bool:
        return self.sessions is None and not self.mine and self.filters == ListFilters()


def exportable_sessions(viewer: Viewer | None) -> QuerySet[Session]:
    """Sessions that the viewer may export. None is the operator, who may export all."""
    if viewer is None:
        return visible_sessions(Reach(), sees_held=True, moment=timezone.now())
    return sessions_for(viewer, Purpose.EXPORT)


def selected_sessions(viewer: Viewer | None, selection: Selection) -> QuerySet[Session]:
    rows = exportable_sessions(viewer).filter(selection.filters.conditions())
    if selection.mine:
        rows = rows.filter(owner_id=person_of(viewer))
    return rows if selection.sessions is None else rows.filter(pk__in=selection.sessions)


class ChosenSessions:
    """The ids of an export, fixed when it begins."""

    def __init__(self, viewer: Viewer | None, selection: Selection, *, cursor: ExportCursor, reason: str) -> None:
        self.viewer, self.selection, self.reason = viewer, selection, check_reason(reason) if reason.strip() else ""
        if len(selection.sessions or ()) > MOST_NAMED:
            raise CannotExport(f"name at most {MOST_NAMED:,} sessions, or narrow by filters instead")
        rows = selected_sessions(viewer, selection)
        if cursor.since.at is not None:
            rows = rows.filter(changed_at__gte=cursor.since.at)
        if cursor.after is not None:
            rows = rows.filter(pk__gt=cursor.after)
        self._ids = b"".join(pk.bytes for pk in _ids_of(rows))
        self._refuse_what_is_not_theirs()
        if not self.reason:  # without one, sessions of other users must have been opened before
            for batch in self._batches():
                self._open(list(exportable_sessions(viewer).filter(pk__in=batch).only(*_RIGHTS)))

    def __len__(self) -> int:
        return len(self._ids) // 16

    def __iter__(self) -> Iterator[Session]:
        """The sessions as they are now, each opened with the reason that was given."""
        for batch in self._batches():
            rows = (
                exportable_sessions(self.viewer).filter(pk__in=batch).select_related("owner", "api_key").order_by("pk")
            )
            found = list(rows.annotate(has_exchanges=Exists(Exchange.objects.filter(session=OuterRef("pk")))))
            if self.reason:
                self._open(found)
            yield from found

    def only(self) -> Session | None:
        """The session, where it is one alone, to be named and not to be read."""
        return Session.objects.filter(pk=UUID(bytes=self._ids)).first() if len(self) == 1 else None

    def tell(self, **details: Any) -> None:
        """One audit event for the export as a whole."""
        who = {"key": self.viewer.pk} if isinstance(self.viewer, ApiKey) else {"actor": person_of(self.viewer)}
        audit.record("export", reason=self.reason, count=len(self), **who, **details)

    def _open(self, sessions: Sequence[Session]) -> None:
        if self.viewer is not None:
            open_each(self.viewer, sessions, reason=self.reason, purpose=Purpose.EXPORT)

    def _batches(self) -> Iterator[list[UUID]]:
        for start in range(0, len(self._ids), 16 * BATCH):
            batch = self._ids[start : start + 16 * BATCH]
            yield [UUID(bytes=batch[place : place + 16]) for place in range(0, len(batch), 16)]

    def _refuse_what_is_not_theirs(self) -> None:
        """Raise where a named session is missing or not permitted; a cursor may have left it out."""
        wanted = set(self.selection.sessions or ())
        missing = wanted - set(exportable_sessions(self.viewer).filter(pk__in=wanted).values_list("pk", flat=True))
        if not missing:
            return
        if self.viewer is not None and sessions_for(self.viewer, Purpose.LIST).filter(pk__in=missing).exists():
            raise NotPermitted("no right to export this session")
        raise NothingSelected(f"there is no session {sorted(map(str, missing))[0]}")


_RIGHTS = ("owner", "api_key", "hold", "hidden_at", "expires_at")


def loose_exchanges(chosen: ChosenSessions, *, since: Mark | None) -> QuerySet[Exchange]:
    """Calls that belong to no session, which go with an export that is narrowed by nothing but whose it is."""
    viewer, selection = chosen.viewer, chosen.selection
    reach = Reach() if viewer is None else reach_of(viewer, Purpose.EXPORT)
    if reach is None or selection.sessions is not None or selection.filters != ListFilters():
        return Exchange.objects.none()
    rows = Exchange.objects.filter(reach.as_q(), session=None)
    if selection.mine:
        rows = rows.filter(owner_id=person_of(viewer))
    return rows.filter(ended_at__gte=since.at) if since is not None and since.at is not None else rows


def has_everything(viewer: Viewer | None) -> bool:
    return viewer is None or can_access_others(viewer, Purpose.EXPORT)


def person_of(viewer: Viewer | None) -> int | None:
    return viewer.owner_id if isinstance(viewer, ApiKey) else viewer.pk if viewer is not None else None


def _ids_of(rows: QuerySet[Session]) -> Iterator[UUID]:
    yield from rows.order_by("pk").values_list("pk", flat=True).iterator(chunk_size=2_000)


def was_selected(
    viewer: Viewer | None, selection: Selection, gone: UUID, *, owner: int | None, key: int | None
) -> bool:
    """Whether the viewer might have exported a deleted session. Filters cannot be applied to it."""
    reach = Reach() if viewer is None else reach_of(viewer, Purpose.EXPORT)
    if reach is None or (reach.api_key_id is not None and key != reach.api_key_id):
        return False
    if reach.owner_id is not None and owner != reach.owner_id:
        return False
    if selection.mine and owner != person_of(viewer):
        return False
    return selection.sessions is None or gone in selection.sessions


# Sessions that were deleted since an earlier export.


def deleted_since(chosen: ChosenSessions, *, since: Mark, until: Mark) -> Iterator[tuple[UUID, datetime]]:
    """Each session once, at the last time that it was deleted; such as came back are none."""
    if since.at is None:
        return
    events = AuditEvent.objects.filter(seq__gt=since.event, seq__lte=until.event, action__in=DELETING)
    walk = events.exclude(session=None).order_by("seq").iterator(chunk_size=EVENT_PAGE)
    while page := list(islice(walk, EVENT_PAGE)):
        last = {event.session: event for event in page if event.session}
        there = {row.pk: row for row in Session.objects.filter(pk__in=last).only("owner", "api_key")}
        served = set(exportable_sessions(chosen.viewer).filter(pk__in=last).values_list("pk", flat=True))
        for gone, event in last.items():
            whose = _whose(event, there.get(gone))
            if gone not in served and was_selected(chosen.viewer, chosen.selection, gone, **whose):
                yield gone, event.at


def _whose(event: AuditEvent, row: Session | None) -> dict[str, int | None]:
    """From its row as long as that is there, then from the event of its removal."""
    if row is not None:
        return {"owner": row.owner_id, "key": row.api_key_id}
    details = json.loads(event.details or "{}")
    return {"owner": details.get("owner"), "key": details.get("by_key")}
