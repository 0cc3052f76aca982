"""Selection of the sessions to export, limited to what the viewer may export.

The ids are listed once, sixteen bytes each. The sessions are read in batches during the export under the same
permissions, so that sessions deleted in the meantime are left out.
"""

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
from history.access.reasons import NotPermitted, check_reason, open_each, person_of
from history.errors import HistoryError
from history.exporting.cursors import ExportCursor, Mark
from history.models import ApiKey, AuditEvent, Exchange, Session
from history.search import SessionQuery

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


def exportable_sessions(viewer: Viewer | None) -> QuerySet[Session]:
    """Sessions that the viewer may export. None is the operator, who may export all."""
    if viewer is None:
        return visible_sessions(Reach(), sees_held=True, moment=timezone.now())
    return sessions_for(viewer, Purpose.EXPORT)


def selected_sessions(viewer: Viewer | None, selection: Selection) -> QuerySet[Session]:
    rows = selection.filters.apply(exportable_sessions(viewer))
    if selection.mine:
        rows = rows.filter(owner_id=owner_id_of(viewer))
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
        ids = rows.order_by("pk").values_list("pk", flat=True).iterator(chunk_size=2_000)
        self._ids = b"".join(pk.bytes for pk in ids)
        self._check_named_sessions()
        if not self.reason:  # without one, sessions of other users must have been opened before
            for batch in self._batches():
                self._open(list(exportable_sessions(viewer).filter(pk__in=batch).only(*RIGHTS)))

    def __len__(self) -> int:
        return len(self._ids) // 16

    def __iter__(self) -> Iterator[Session]:
        """The sessions as they are now, each opened with the reason."""
        for batch in self._batches():
            rows = exportable_sessions(self.viewer).filter(pk__in=batch).select_related("owner", "api_key")
            has_exchanges = Exists(Exchange.objects.filter(session=OuterRef("pk")))
            sessions = list(rows.annotate(has_exchanges=has_exchanges).order_by("pk"))
            if self.reason:
                self._open(sessions)
            yield from sessions

    @property
    def is_everything(self) -> bool:
        """All sessions of all users."""
        is_all = self.selection == Selection()
        return is_all and (self.viewer is None or can_access_others(self.viewer, Purpose.EXPORT))

    def only(self) -> Session | None:
        """The session of an export of exactly one, for the file name."""
        return Session.objects.filter(pk=UUID(bytes=self._ids)).first() if len(self) == 1 else None

    def record_event(self, **details: Any) -> None:
        """One audit event for the export as a whole."""
        who = {"key": self.viewer.pk} if isinstance(self.viewer, ApiKey) else {"actor": owner_id_of(self.viewer)}
        audit.record("export", reason=self.reason, count=len(self), **who, **details)

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
        missing = wanted - set(exportable_sessions(self.viewer).filter(pk__in=wanted).values_list("pk", flat=True))
        if not missing:
            return
        if self.viewer is not None and sessions_for(self.viewer, Purpose.LIST).filter(pk__in=missing).exists():
            raise NotPermitted("no right to export this session")
        raise NothingSelected(f"there is no session {sorted(map(str, missing))[0]}")


def loose_exchanges(chosen: ChosenSessions, *, since: Mark | None) -> QuerySet[Exchange]:
    """Exchanges without a session. They belong to exports that are narrowed by owner at most."""
    viewer, selection = chosen.viewer, chosen.selection
    reach = Reach() if viewer is None else reach_of(viewer, Purpose.EXPORT)
    if reach is None or selection.sessions is not None or selection.filters != SessionQuery():
        return Exchange.objects.none()
    rows = Exchange.objects.filter(reach.as_q(), session=None)
    if selection.mine:
        rows = rows.filter(owner_id=owner_id_of(viewer))
    return rows.filter(ended_at__gte=since.at) if since is not None and since.at is not None else rows


def owner_id_of(viewer: Viewer | None) -> int | None:
    return None if viewer is None else person_of(viewer)


def _was_selected(chosen: ChosenSessions, gone: UUID, *, owner: int | None, key: int | None) -> bool:
    """Whether the viewer might have exported a deleted session. Filters cannot be applied to it."""
    viewer, selection = chosen.viewer, chosen.selection
    reach = Reach() if viewer is None else reach_of(viewer, Purpose.EXPORT)
    if reach is None or (reach.api_key_id is not None and key != reach.api_key_id):
        return False
    if reach.owner_id is not None and owner != reach.owner_id:
        return False
    if selection.mine and owner != owner_id_of(viewer):
        return False
    return selection.sessions is None or gone in selection.sessions


def deleted_since(chosen: ChosenSessions, *, since: Mark, until: Mark) -> Iterator[tuple[UUID, datetime]]:
    """Each deleted session once, at the last deletion; restored sessions are left out."""
    if since.at is None:
        return
    events = AuditEvent.objects.filter(seq__gt=since.event, seq__lte=until.event, action__in=DELETING)
    walk = events.exclude(session=None).order_by("seq").iterator(chunk_size=EVENT_PAGE)
    while page := list(islice(walk, EVENT_PAGE)):
        last = {event.session: event for event in page if event.session}
        there = {row.pk: row for row in Session.objects.filter(pk__in=last).only("owner", "api_key")}
        served = set(exportable_sessions(chosen.viewer).filter(pk__in=last).values_list("pk", flat=True))
        for gone, event in last.items():
            if (row := there.get(gone)) is not None:
                owner, key = row.owner_id, row.api_key_id
            else:  # its row is gone, but the event of the removal has them
                details = json.loads(event.details or "{}")
                owner, key = details.get("owner"), details.get("by_key")
            if gone not in served and _was_selected(chosen, gone, owner=owner, key=key):
                yield gone, event.at
