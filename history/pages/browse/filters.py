"""Filters of the browse page: the query of a /history/ URL, and facets that count its values.

No URL is an error. Only the newest few hundred results are counted, so the cost does not grow with the history. A facet
with ticked values is counted without its own filter, so its other values can be chosen.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _, pgettext

from history.access.permissions import Viewer
from history.models import ApiKey, Session, ToolCall
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
    def parse(cls, values: QueryDict) -> "BrowseQuery":
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
        return replace(self, before="", archived=False) != BrowseQuery()

    @property
    def number_of_filters(self) -> int:
        narrowing = (*(getattr(self, name) for name in MANY_VALUES), self.key, self.has_error, self.since, self.until)
        return sum(bool(value) for value in narrowing)

    def without(self, name: str) -> "BrowseQuery":
        """The same without one filter: what its other values would find."""
        return replace(self, **{name: getattr(BrowseQuery(), name)})

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


AMONG = 500  # of the newest sessions or messages are counted
VALUES = 8  # of a facet are shown, the most frequent first, besides those that are ticked
TOOL_SESSIONS = 50
MOST_CALLS = 2_000
COLUMNS = {"source": "source", "key": "api_key_id", "owner": "owner_id", "agent": "agent", "model": "model"}
TICKED = ("source", "owner", "agent", "model", "status")

_ID_TEXT = Cast("pk", TextField())  # Django takes longer to make the ids UUIDs than to read the rows

Counts = Counter[Any]  # of values; keys and owners are ids


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    count: int | None
    is_picked: bool


class Facet(NamedTuple):
    name: str
    label: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Name of a facet → value → count. Keys and owners are ids."""

    counts: Mapping[str, Counts]
    number: int
    sessions: int
    errors: int | None = None
    is_all: bool


Counting = Callable[[BrowseQuery], Spread]


def spread_of_sessions(sessions: QuerySet[Session]) -> Spread:
    rows_newest_first = sessions.order_by("-last_activity_at", "-id")
    newest = list(rows_newest_first.values_list(_ID_TEXT, "error_count", *COLUMNS.values())[: AMONG + 1])
    rows = newest[:AMONG]
    places = enumerate(COLUMNS, 2)
    counts: dict[str, Counts] = {name: Counter(row[place] for row in rows if row[place]) for place, name in places}
    return Spread(
        counts=counts | {"tool": count_tools([UUID(row[0]) for row in rows[:TOOL_SESSIONS]])},
        number=len(rows),
        sessions=len(rows),
        errors=sum(bool(row[1]) for row in rows),
        is_all=len(newest) <= AMONG,
    )


def count_tools(sessions: Sequence[UUID]) -> Counts:
    """In how many of these sessions each tool was called; only the first 2,000 calls are read."""
    calls = ToolCall.objects.filter(session_id__in=sessions).order_by()
    names = calls.values_list(Cast("session_id", TextField()), "name")[:MOST_CALLS]
    return Counter(name for _session, name in set(names))


def facets_for(query: BrowseQuery, spread: Spread, *, count: Counting, sees_others: bool) -> tuple[Facet, ...]:
    """`count` counts another query in the same way."""
    counts = dict(spread.counts)
    for name in TICKED:
        others = query.without(name)
        if others != query and others.is_search == query.is_search:
            counts[name] = count(others).counts.get(name, Counter())
    people = get_user_model().objects.filter(pk__in=list(counts.get("owner", ()))) if sees_others else []
    counts["owner"] = Counter({person.get_username(): counts["owner"][person.pk] for person in people})
    names = {"source": _("Source"), "owner": _("Owner"), "agent": _("Agent"), "model": _("Model"), "tool": _("Tool")}
    facets = []
    for name, label in names.items():
        counter, picked = counts.get(name, Counter()), getattr(query, name)
        frequent = [value for value, _number in counter.most_common(VALUES)]
        values = [*frequent, *(value for value in picked if value not in frequent)]
        labels = dict(Session.Source.choices) if name == "source" else {}
        options = _options({value: labels.get(value, value) for value in values}, counter, picked)
        facets.append(Facet(name, label, options))
    # Only messages have a status: in a list of sessions there is no count.
    statuses = {"interrupted": pgettext("status", "interrupted"), "failed": pgettext("status", "failed")}
    facets.append(Facet("status", _("Answer status"), _options(statuses, counts.get("status"), query.status)))
    return tuple(facet for facet in facets if facet.options and (sees_others or facet.name != "owner"))


def _options(labels: Mapping[str, object], counter: Counts | None, picked: Collection[str]) -> tuple[Option, ...]:
    return tuple(
        Option(value, str(label), None if counter is None else counter[value], value in picked)
        for value, label in labels.items()
    )


def keys_for(viewer: Viewer, spread: Spread, query: BrowseQuery, *, sees_others: bool) -> tuple[Option, ...]:
    """The keys to choose from: the viewer's own, or all keys for viewers who see other users' sessions."""
    if sees_others:
        keys = ApiKey.objects.select_related("owner").only("name", "prefix", "owner__username")
    else:
        keys = ApiKey.objects.filter(owner_id=viewer.pk).only("name", "prefix")
    counter = spread.counts.get("key", Counter())
    options = []
    for key in keys.order_by("name", "pk")[:200]:
        label = f"{key.name} · {key.owner.get_username()}" if sees_others else key.name
        options.append(Option(key.prefix, label, counter[key.pk], key.prefix == query.key))
    return tuple(options)
