"""Sessions in lists: newest activity first, narrowed by filters, a page at a time by keyset."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from history.models import Session


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last session of a page: where the next one begins. As a text it is made to be copied."""

    at: datetime
    session: UUID

    def __str__(self) -> str:
        return f"{self.at.isoformat()}_{self.session}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Raises ValueError for anything that no list has given out."""
        at, _, session = text.rpartition("_")
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError("a cursor has a time zone")
        try:
            return cls(moment.astimezone(UTC), UUID(session))
        except OverflowError:
            raise ValueError("a cursor lies within the calendar") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilters:
    """None: no such filter. `agent` and `workspace` together name one agent's history in one workspace."""

    owner: str | None = None
    key: str | None = None
    source: str | None = None
    agent: str | None = None
    workspace: str | None = None
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> Q:
        asked = {
            "owner__username": self.owner,
            "api_key__prefix": self.key,
            "source": self.source,
            "agent": self.agent,
            "workspace": self.workspace,
            "model": self.model,
            "last_activity_at__gte": self.since,
            "last_activity_at__lt": self.until,
        }
        return Q(**{name: value for name, value in asked.items() if value is not None})


@dataclass(frozen=True, slots=True)
class SessionPage:
    sessions: list[Session]
    next_before: Cursor | None


def list_sessions(
    sessions: QuerySet[Session],
    *,
    filters: ListFilters = ListFilters(),  # noqa: B008 - frozen
    before: Cursor | None = None,
    limit: int = 50,
) -> SessionPage:
    """One page of what the filters leave of `sessions` (what the viewer may see)."""
    found = sessions.filter(filters.conditions()).order_by("-last_activity_at", "-id")
    if before is not None:
        older = Q(last_activity_at__lt=before.at) | Q(last_activity_at=before.at, pk__lt=before.session)
        found = found.filter(older, last_activity_at__lte=before.at)
    rows = list(found.select_related("owner", "api_key")[: limit + 1])
    page = rows[:limit]
    more = len(rows) > limit
    return SessionPage(page, Cursor(page[-1].last_activity_at, page[-1].pk) if more else None)


def sessions_beginning_with(sessions: QuerySet[Session], prefix: str) -> list[Session]:
    """At most two: whoever gives the beginning of an id wants to know whether it means one session."""
    digits = prefix.replace("-", "").lower()
    if not 0 < len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        return []
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return list(sessions.filter(pk__gte=first, pk__lte=last).select_related("owner", "api_key").order_by("pk")[:2])
