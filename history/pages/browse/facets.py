"""Facets of the browse page: counts by source, key, owner, agent, model, tool and status.

Only the newest few hundred results are counted, so the cost does not grow with the history; the page says when there
are more. A facet with ticked values is counted without its own filter, so its other values can still be chosen.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history.access.permissions import Viewer
from history.models import ApiKey, Message, Session, ToolCall
from history.pages.browse.query import BrowseQuery

AMONG = 500  # of the newest sessions or messages are counted
VALUES = 8  # of a facet are shown, the most frequent first, besides those that are ticked
TOOL_SESSIONS = 50
MOST_CALLS = 2_000
COLUMNS = ("source", "api_key_id", "owner_id", "agent", "model")
TICKED = ("source", "owner", "agent", "model", "status")


Counts = Counter[Any]  # of values; keys and owners are ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    value: str
    label: str
    count: int | None = None
    is_picked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    name: str
    label: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Name of a facet → value → count. Keys and owners are ids."""

    counts: Mapping[str, Counts]
    number: int = 0
    sessions: int = 0
    errors: int | None = None
    is_all: bool = True


Counting = Callable[[BrowseQuery], Spread]


def spread_of_sessions(sessions: QuerySet[Session]) -> Spread:
    newest = list(sessions.order_by("-last_activity_at", "-id").values_list("pk", "error_count", *COLUMNS)[: AMONG + 1])
    rows = newest[:AMONG]
    counts: dict[str, Counts] = {
        name: Counter(row[place] for row in rows if row[place])
        for place, name in enumerate(("source", "key", "owner", "agent", "model"), 2)
    }
    return Spread(
        counts=counts | {"tool": count_tools([row[0] for row in rows[:TOOL_SESSIONS]])},
        number=len(rows),
        sessions=len(rows),
        errors=sum(bool(row[1]) for row in rows),
        is_all=len(newest) <= AMONG,
    )


def count_tools(sessions: Sequence[UUID]) -> Counts:
    """In how many of these sessions each tool was called; only the first 2,000 calls are read."""
    calls = ToolCall.objects.filter(session_id__in=sessions).order_by().values_list("session_id", "name")[:MOST_CALLS]
    return Counter(name for _session, name in set(calls))


def facets_for(query: BrowseQuery, spread: Spread, *, count: Counting, sees_others: bool) -> tuple[Facet, ...]:
    """`count` counts another query in the same way."""
    counts = dict(spread.counts)
    for name in TICKED:
        others = query.without(name)
        if others != query and others.is_search == query.is_search:
            counts[name] = count(others).counts.get(name, Counter())
    people = get_user_model().objects.filter(pk__in=list(counts.get("owner", ()))) if sees_others else []
    counts["owner"] = Counter({person.get_username(): counts["owner"][person.pk] for person in people})
    facets = [
        _facet("source", _("Source"), counts, query, labels=dict(Session.Source.choices)),
        _facet("owner", _("Owner"), counts, query) if sees_others else None,
        _facet("agent", _("Agent"), counts, query),
        _facet("model", _("Model"), counts, query),
        _facet("tool", _("Tool"), counts, query),
        _status(counts, query),
    ]
    return tuple(facet for facet in facets if facet and facet.options)


def _facet(
    name: str,
    label: str,
    counts: Mapping[str, Counts],
    query: BrowseQuery,
    *,
    labels: Mapping[str, object] | None = None,
) -> Facet:
    counter = counts.get(name, Counter())
    picked: Sequence[str] = getattr(query, name)
    frequent = [value for value, _number in counter.most_common(VALUES)]
    options = (
        Option(
            value=value, label=str((labels or {}).get(value, value)), count=counter[value], is_picked=value in picked
        )
        for value in (*frequent, *(value for value in picked if value not in frequent))
    )
    return Facet(name=name, label=label, options=tuple(options))


def _status(counts: Mapping[str, Counts], query: BrowseQuery) -> Facet:
    """Only messages have a status: in a list of sessions there is no count."""
    counter = counts.get("status")
    labels = {
        Message.Status.INTERRUPTED: pgettext("status", "interrupted"),
        Message.Status.FAILED: pgettext("status", "failed"),
    }
    options = (
        Option(
            value=value, label=label, count=None if counter is None else counter[value], is_picked=value in query.status
        )
        for value, label in labels.items()
    )
    return Facet(name="status", label=_("Answer status"), options=tuple(options))


def keys_for(viewer: Viewer, spread: Spread, query: BrowseQuery, *, sees_others: bool) -> tuple[Option, ...]:
    """The keys to choose from: the viewer's own, or all keys for viewers who see other users' sessions."""
    keys = ApiKey.objects.all() if sees_others else ApiKey.objects.filter(owner_id=viewer.pk)
    counter = spread.counts.get("key", Counter())
    return tuple(
        Option(
            value=key.prefix,
            label=f"{key.name} · {key.owner.get_username()}" if sees_others else key.name,
            count=counter[key.pk],
            is_picked=key.prefix == query.key,
        )
        for key in keys.select_related("owner").order_by("name", "pk")[:200]
    )
