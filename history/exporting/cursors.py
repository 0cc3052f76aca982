"""Cursors of incremental exports: where the last export ended.

A cursor is a moment, and a place in the audit chain for what was deleted. Everything that became visible later has
changed after that moment: the moment lies before the oldest transaction that was running when it was taken. (Numbers
would not do. On PostgreSQL they are given out in one order and become visible in another.) What was changed just
before may come twice; nothing is left out.

One that stands inside an export besides says how far that one came (`after`) and where it began (`ends`): so a download
can be resumed, and its end is still the end of the first attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from history.db.transactions import writing
from history.models import AuditEvent

START = "start"
CLOCK_SKEW = timedelta(seconds=10)  # that the clocks of several machines on one PostgreSQL may differ

_OLDEST = """
SELECT min(xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything that changed at this moment or later, and what was deleted after this event, is new."""

    at: datetime | None = None
    event: int = 0

    def __str__(self) -> str:
        at = "0" if self.at is None else self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return f"{at}~{self.event}"


@dataclass(frozen=True, slots=True)
class ExportCursor:
    since: Mark = Mark()
    ends: Mark | None = None
    after: UUID | None = None

    def __str__(self) -> str:
        return str(self.since) if self.ends is None else f"{self.since}~{self.ends}~{self.after or ''}"

    def at(self, session_id: UUID) -> ExportCursor:
        """Inside the export that goes to `ends`, behind this session."""
        return replace(self, after=session_id)

    @classmethod
    def read(cls, text: str) -> ExportCursor:
        """Raises ValueError for anything that no export has given out."""
        if text == START:
            return cls()
        parts = text.split("~")
        if len(parts) == 2:
            return cls(_mark(*parts))
        if len(parts) != 5:
            raise ValueError("this is no cursor: give the one that an export ended with, or 'start'")
        return cls(_mark(*parts[:2]), _mark(*parts[2:4]), UUID(parts[4]) if parts[4] else None)


def _mark(at: str, event: str) -> Mark:
    try:
        moment = None if at == "0" else datetime.fromisoformat(at).astimezone(UTC)
        return Mark(moment, int(event))
    except (ValueError, OverflowError):
        raise ValueError("this is no cursor: give the one that an export ended with, or 'start'") from None


def horizon() -> Mark:
    """The moment before which nothing can become visible any more."""
    event = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    if connection.vendor != "postgresql":
        with writing():  # there is one writer at a time, and now it is us
            return Mark(timezone.now(), event)
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        oldest: Any = cursor.fetchone()[0]
    return Mark(min(oldest or now, now) - CLOCK_SKEW, event)
