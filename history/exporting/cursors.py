"""Cursors of incremental exports: a moment, and a place in the audit chain for deletions.

The moment is before the oldest transaction that was running when the cursor was made, so every later change has a later
time. Numbers would not do: PostgreSQL assigns them in one order and makes them visible in another. A change just before
the moment may be exported twice. The cursor of an interrupted export also has the last session (`after`) and the end of
the first attempt (`ends`), so that a download can be resumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection
from django.utils import timezone

from history.db.transactions import writing
from history.models import AuditEvent

START = "start"
NOT_A_CURSOR = "not a valid cursor: use the cursor at the end of an export, or 'start'"
CLOCK_SKEW = timedelta(seconds=10)  # between the clocks of several machines on one PostgreSQL

_OLDEST = """
SELECT min(xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """Changes at this moment or later, and deletions after this event, are new."""

    at: datetime | None = None
    event: int = 0

    def __str__(self) -> str:
        at = "0" if self.at is None else self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return f"{at}~{self.event}"


@dataclass(frozen=True, slots=True)
class ExportCursor:
    since: Mark = Mark()
    ends: Mark | None = None
    after: UUID | None = None  # the session to resume after

    def __str__(self) -> str:
        return str(self.since) if self.ends is None else f"{self.since}~{self.ends}~{self.after or ''}"

    @classmethod
    def parse(cls, text: str) -> ExportCursor:
        """Parse the text of a cursor. Raises ValueError."""
        if text == START:
            return cls()
        parts = text.split("~")
        if len(parts) == 2:
            return cls(_parse_mark(*parts))
        if len(parts) != 5:
            raise ValueError(NOT_A_CURSOR)
        return cls(_parse_mark(*parts[:2]), _parse_mark(*parts[2:4]), UUID(parts[4]) if parts[4] else None)


def _parse_mark(at: str, event: str) -> Mark:
    try:
        moment = None if at == "0" else datetime.fromisoformat(at).astimezone(UTC)
        return Mark(moment, int(event))
    except (ValueError, OverflowError):
        raise ValueError(NOT_A_CURSOR) from None


def horizon() -> Mark:
    """The moment before which no change can become visible any more."""
    event = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    if connection.vendor != "postgresql":
        with writing():  # SQLite has one writer at a time
            return Mark(timezone.now(), event)
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        oldest: datetime | None = cursor.fetchone()[0]
    return Mark(min(oldest or now, now) - CLOCK_SKEW, event)
