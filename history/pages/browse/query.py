"""What an address of /history/ asks for. Every state of the page is such an address, and none is an error.

Several values of one filter mean any of them. Without words, and without a filter that only messages have, sessions are
listed; otherwise messages are found.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date

from history.record.listing import ListCursor, ListFilters

MOST_VALUES = 20
VALUE_CHARS = 200
MANY_VALUES = ("source", "owner", "agent", "model", "tool", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseQuery:
    words: str = ""
    key: str = ""
    source: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    has_error: bool = False
    archived: bool = False
    since: date | None = None
    until: date | None = None
    before: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> BrowseQuery:
        return cls(
            words=_text(given, "q", limit=2_000),
            key=_text(given, "key"),
            **{name: _texts(given, name) for name in MANY_VALUES},
            has_error=given.get("error") == "1",
            archived=given.get("archived") == "1",
            since=_day(given, "since"),
            until=_day(given, "until"),
            before=_text(given, "before"),
        )

    @property
    def is_search(self) -> bool:
        return bool(self.words or self.tool or self.status)

    @property
    def is_narrowed(self) -> bool:
        """Whether there is anything to take back."""
        return replace(self, before="", archived=False) != BrowseQuery()

    @property
    def number_of_filters(self) -> int:
        narrowing = (*(getattr(self, name) for name in MANY_VALUES), self.key, self.has_error, self.since, self.until)
        return sum(bool(value) for value in narrowing)

    def without(self, name: str) -> BrowseQuery:
        """The same without one filter: what its other values would find."""
        empty = next(field.default for field in fields(self) if field.name == name)
        return replace(self, **{name: empty})  # type: ignore[arg-type]

    def link(self, **others: Any) -> str:
        """The query of the same page but for these; the page begins at its top unless `before` is among them."""
        asked = replace(self, **{"before": "", **others})
        pairs: list[tuple[str, str]] = [("q", asked.words), ("key", asked.key)]
        pairs += [(name, value) for name in MANY_VALUES for value in getattr(asked, name)]
        pairs += [("error", "1" if asked.has_error else ""), ("archived", "1" if asked.archived else "")]
        pairs += [(name, day.isoformat() if (day := getattr(asked, name)) else "") for name in ("since", "until")]
        query = urlencode([pair for pair in (*pairs, ("before", asked.before)) if pair[1]])
        return f"?{query}" if query else "?"

    @property
    def here(self) -> str:
        return self.link()

    @property
    def begins(self) -> datetime | None:
        return _midnight(self.since) if self.since else None

    @property
    def ends(self) -> datetime | None:
        """The day named last is part of it."""
        return _midnight(self.until + timedelta(days=1)) if self.until and self.until < date.max else None

    @property
    def cursor(self) -> ListCursor | None:
        """Of a list; what no list has given out asks for the beginning."""
        try:
            return ListCursor.read(self.before)
        except ValueError:
            return None

    @property
    def message(self) -> int | None:
        """Under which message a search goes on."""
        text = self.before
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    @property
    def list_filters(self) -> ListFilters:
        return ListFilters(
            owner=self.owner or None,
            key=self.key or None,
            source=self.source or None,
            agent=self.agent or None,
            model=self.model or None,
            has_error=self.has_error or None,
            since=self.begins,
            until=self.ends,
        )


def _text(given: QueryDict, name: str, *, limit: int = VALUE_CHARS) -> str:
    return given.get(name, "").replace("\0", " ").strip()[:limit]


def _texts(given: QueryDict, name: str) -> tuple[str, ...]:
    values = (value.replace("\0", " ").strip()[:VALUE_CHARS] for value in given.getlist(name)[:MOST_VALUES])
    return tuple(dict.fromkeys(filter(None, values)))


def _day(given: QueryDict, name: str) -> date | None:
    try:
        return parse_date(given.get(name, "").strip())
    except ValueError:
        return None


def _midnight(day: date) -> datetime:
    """When a day begins where the reader is; the first and the last of the calendar have no place elsewhere."""
    try:
        return timezone.make_aware(datetime.combine(day, time.min)).astimezone(UTC)
    except (OverflowError, ValueError):
        return datetime.combine(day, time.min, tzinfo=UTC)
