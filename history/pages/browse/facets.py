"""How what was found is spread over sources, keys, owners, agents, models, tools and outcomes: what to narrow it by.

Counted among the newest few hundred, so that it costs the same at any size; where there is more, the page says so. A
facet with ticked values is counted without its own filter, so that its other values can still be chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history.models import ApiKey, Message, Session, ToolCall
from history.pages.browse.query import BrowseQuery

AMONG = 500
"""So many of the newest sessions or messages are counted."""
VALUES = 8
"""So many values of a facet are shown, the most frequent first, besides those that are ticked."""
TOOL_SESSIONS = 50
MOST_CALLS = 2_000
COLUMNS = ("source", "api_key_id", "owner_id", "agent", "model")
TICKED = ("source", "owner", "agent", "model", "status")


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
    """Name of a facet → value → how many of those that were counted have it; keys and owners by their ids."""

    counts: Mapping[str, Counter[Any]]
    number: int = 0
    sessions: int = 0
    errors: int | None = None
    is_all: bool = True


Counting = Callable[[BrowseQuery], Spread]


def spread_of_sessions(found: QuerySet[Session]) -> Spread:
    """Of the newest of these sessions, in the order in which they are listed."""
    newest = list(found.order_by("-last_activity_at", "-id").values_list("pk", "error_count", *COLUMNS)[: AMONG + 1])
    rows = newest[:AMONG]
    counts: dict[str, Counter[Any]] = {
        name: Counter(row[place] for row in rows if row[place])
        for place, name in enumerate(("source", "key", "owner", "agent", "model"), 2)
    }
    return Spread(
        counts=counts | {"tool": tools_of([row[0] for row in rows[:TOOL_SESSIONS]])},
        number=len(rows),
        sessions=len(rows),
        errors=sum(bool(row[1]) for row in rows),
        is_all=len(newest) <= AMONG,
    )


def tools_of(sessions: Sequence[UUID]) -> Counter[Any]:
    """Which tools these sessions have called, and in how many of them; looked at are so many calls that it is quick."""
    calls = ToolCall.objects.filter(session_id__in=sessions).order_by().values_list("session_id", "name")[:MOST_CALLS]
    return Counter(name for _session, name in set(calls))


def facets_for(asked: BrowseQuery, spread: Spread, *, count: Counting, sees_others: bool) -> tuple[Facet, ...]:
    """`count` counts another question in the same way."""
    counts = dict(spread.counts)
    for name in TICKED:
        others = asked.without(name)
        if others != asked and others.is_search == asked.is_search:
            counts[name] = count(others).counts.get(name, Counter())
    owners = _by_name(counts.get("owner", Counter())) if sees_others else Counter()
    facets = [
        _facet("source", _("Source"), counts, asked, labels=dict(Session.Source.choices)),
        _facet("owner", _("Owner"), {"owner": owners}, asked) if sees_others else None,
        _facet("agent", _("Agent"), counts, asked),
        _facet("model", _("Model"), counts, asked),
        _facet("tool", _("Tool"), counts, asked),
        _status(counts, asked),
    ]
    return tuple(facet for facet in facets if facet and facet.options)


def _facet(
    name: str,
    label: str,
    counts: Mapping[str, Counter[Any]],
    asked: BrowseQuery,
    *,
    labels: Mapping[str, Any] | None = None,
) -> Facet:
    counted = counts.get(name, Counter())
    picked: Sequence[str] = getattr(asked, name)
    shown = [value for value, _number in counted.most_common(VALUES)]
    values = [*shown, *(value for value in picked if value not in shown)]
    options = (_option(value, str((labels or {}).get(value, value)), counted, picked) for value in values)
    return Facet(name=name, label=label, options=tuple(options))


def _option(value: str, label: str, counted: Counter[Any], picked: Iterable[str]) -> Option:
    return Option(value=value, label=label, count=counted.get(value, 0), is_picked=value in picked)


def _status(counts: Mapping[str, Counter[Any]], asked: BrowseQuery) -> Facet:
    """Of messages; where sessions are listed nobody has counted them."""
    counted = counts.get("status")
    labels = {
        Message.Status.INTERRUPTED: pgettext("status", "interrupted"),
        Message.Status.FAILED: pgettext("status", "failed"),
    }
    options = (
        Option(
            value=value,
            label=label,
            count=None if counted is None else counted[value],
            is_picked=value in asked.status,
        )
        for value, label in labels.items()
    )
    return Facet(name="status", label=_("Answers that were"), options=tuple(options))


def _by_name(owners: Mapping[int, int]) -> Counter[Any]:
    people = get_user_model().objects.filter(pk__in=list(owners)).values_list("pk", "username")
    return Counter({name: owners[pk] for pk, name in people})


def keys_for(viewer: Any, spread: Spread, asked: BrowseQuery, *, sees_others: bool) -> tuple[Option, ...]:
    """The keys to choose from: one's own, or everybody's."""
    keys = ApiKey.objects.all() if sees_others else ApiKey.objects.filter(owner_id=viewer.pk)
    counted = spread.counts.get("key", Counter())
    return tuple(
        Option(
            value=key.prefix,
            label=f"{key.name} · {key.owner.get_username()}" if sees_others else key.name,
            count=counted.get(key.pk, 0),
            is_picked=key.prefix == asked.key,
        )
        for key in keys.select_related("owner").order_by("name", "pk")[:200]
    )
