"""The query of a /history/ URL. Every state of the page is a URL, and no URL is an error.

Several values of one filter mean any of them. Without words, and without a filter that only messages have, sessions are
listed; otherwise messages are found.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date

from history.search.queries import SessionQuery, parse_time
from history.text import whole_number

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
    def parse(cls, values: QueryDict) -> BrowseQuery:
        several = {name: map(_clean, values.getlist(name)[:MOST_VALUES]) for name in MANY_VALUES}
        return cls(
            words=_clean(values.get("q", ""), limit=2_000),
            key=_clean(values.get("key", "")),
            **{name: tuple(dict.fromkeys(filter(None, texts))) for name, texts in several.items()},
            has_error=values.get("error") == "1",
            archived=values.get("archived") == "1",
            since=_day(values.get("since", "")),
            until=_day(values.get("until", "")),
            before=_clean(values.get("before", "")),
        )

    @property
    def is_search(self) -> bool:
        return bool(self.words or self.tool or self.status)

    @property
    def is_narrowed(self) -> bool:
        """Whether there is a filter to clear."""
        return replace(self, before="", archived=False) != BrowseQuery()

    @property
    def number_of_filters(self) -> int:
        narrowing = (*(getattr(self, name) for name in MANY_VALUES), self.key, self.has_error, self.since, self.until)
        return sum(bool(value) for value in narrowing)

    def without(self, name: str) -> BrowseQuery:
        """The same without one filter: what its other values would find."""
        empty = next(field.default for field in fields(self) if field.name == name)
        return replace(self, **{name: empty})  # type: ignore[arg-type]

    def link(self, **changes: object) -> str:
        """The query string of the same page with these changes. It begins at the top unless `before` is changed."""
        query = replace(self, **{"before": "", **changes})  # type: ignore[arg-type]
        pairs: list[tuple[str, str]] = [("q", query.words), ("key", query.key)]
        pairs += [(name, value) for name in MANY_VALUES for value in getattr(query, name)]
        pairs += [("error", "1" if query.has_error else ""), ("archived", "1" if query.archived else "")]
        pairs += [(name, day.isoformat() if (day := getattr(query, name)) else "") for name in ("since", "until")]
        return "?" + urlencode([pair for pair in (*pairs, ("before", query.before)) if pair[1]])

    @property
    def message(self) -> int | None:
        """Position in a list of hits: the message that the page continues below."""
        return whole_number(self.before)

    @property
    def filters(self) -> SessionQuery:
        """The filters with owners and key looked up. Archived sessions are a separate list, not a filter."""
        names = {name: getattr(self, name) for name in MANY_VALUES}
        days = {"since": _time(self.since), "until": _time(self.until, is_end=True)}
        return SessionQuery.parse({**names, "key": self.key or None, "has_error": self.has_error or None, **days})


def _clean(text: str, *, limit: int = VALUE_CHARS) -> str:
    return text.replace("\0", " ").strip()[:limit]


def _day(text: str) -> date | None:
    try:
        return parse_date(text.strip())
    except ValueError:
        return None


def _time(day: date | None, *, is_end: bool = False) -> datetime | None:
    zone = timezone.get_current_timezone()
    return parse_time(day.isoformat(), zone=zone, is_end=is_end) if day else None
