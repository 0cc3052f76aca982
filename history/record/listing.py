"""Sessions in lists: newest activity first, narrowed by filters, a page at a time by keyset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

from django.db.models import Q, QuerySet

from history.models import Session, SessionQuerySet

LOOKED_THROUGH = 5_000
"""So many of the newest titles are compared with what was typed."""


@dataclass(frozen=True, slots=True)
class ListCursor:
    """The last session of a page: where the next one begins. As a text it is made to be copied."""

    at: datetime
    session: UUID

    def __str__(self) -> str:
        return f"{self.at.isoformat()}_{self.session}"

    @classmethod
    def read(cls, text: str) -> ListCursor:
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
    """None: no such filter; several values: any of them. `agent` and `workspace` together name one agent's history in
    one workspace."""

    owner: str | tuple[str, ...] | None = None
    key: str | None = None
    source: str | tuple[str, ...] | None = None
    agent: str | tuple[str, ...] | None = None
    workspace: str | None = None
    model: str | tuple[str, ...] | None = None
    client: str | None = None
    has_error: bool | None = None
    pinned: bool | None = None
    archived: bool | None = None
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
            "client": self.client,
            "pinned_at__isnull": None if self.pinned is None else not self.pinned,
            "archived_at__isnull": None if self.archived is None else not self.archived,
            "last_activity_at__gte": self.since,
            "last_activity_at__lt": self.until,
        }
        found = Q(**dict(_condition(name, value) for name, value in asked.items() if value is not None))
        if self.has_error is None:
            return found
        return found & (Q(error_count__gt=0) if self.has_error else Q(error_count=0))


def _condition(name: str, value: object) -> tuple[str, object]:
    """One value of several is that value: then the order of an index holds."""
    if not isinstance(value, tuple):
        return name, value
    return (name, value[0]) if len(value) == 1 else (f"{name}__in", value)


@dataclass(frozen=True, slots=True)
class SessionPage:
    sessions: list[Session]
    next_before: ListCursor | None


def list_sessions(
    sessions: QuerySet[Session],
    *,
    filters: ListFilters = ListFilters(),  # noqa: B008 - frozen
    before: ListCursor | None = None,
    limit: int = 50,
) -> SessionPage:
    """One page of what the filters leave of `sessions` (what the viewer may see)."""
    found = sessions.filter(filters.conditions()).order_by("-last_activity_at", "-id")
    if before is not None:
        found = found.filter(older_than(before))
    rows = list(found.select_related("owner", "api_key")[: limit + 1])
    page = rows[:limit]
    more = len(rows) > limit
    return SessionPage(page, ListCursor(page[-1].last_activity_at, page[-1].pk) if more else None)


def find_by_title(sessions: QuerySet[Session], typed: str, *, limit: int, among: int = LOOKED_THROUGH) -> list[Session]:
    """Those whose title has all the words, newest first."""
    ids = list(islice(ids_titled(sessions, typed, among=among), limit))
    found = Session.objects.select_related("owner", "api_key").in_bulk(ids)
    return [found[pk] for pk in ids if pk in found]


def ids_titled(sessions: QuerySet[Session], typed: str, *, among: int) -> Iterator[UUID]:
    """Among the newest ones: titles have no index. Compared here, because SQLite knows capitals of English alone."""
    words = [word for word in re.findall(r'[^\s"*]+', typed.casefold()) if word != "or" and not word.startswith("-")]
    if not words:
        return iter(())
    sessions = sessions.whose_title_is_visible() if isinstance(sessions, SessionQuerySet) else sessions
    newest = sessions.order_by("-last_activity_at", "-id").values_list("pk", "title")
    return (pk for pk, title in newest[:among] if all(word in title.casefold() for word in words))


def older_than(place: ListCursor) -> Q:
    """The last condition says nothing new, but an index can be entered by it."""
    older = Q(last_activity_at__lt=place.at) | Q(last_activity_at=place.at, pk__lt=place.session)
    return older & Q(last_activity_at__lte=place.at)


def sessions_beginning_with(sessions: QuerySet[Session], prefix: str) -> list[Session]:
    """At most two: whoever gives the beginning of an id wants to know whether it means one session."""
    digits = prefix.replace("-", "").lower()
    if not 0 < len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        return []
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return list(sessions.filter(pk__gte=first, pk__lte=last).select_related("owner", "api_key").order_by("pk")[:2])
