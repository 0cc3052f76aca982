"""Rows of the tallies folded into points of time, each with its sums per value of a grouping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Sum
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, Reach, Viewer, reach_of
from history.models import ApiKey, DayTally, Session
from history.pages.charts.query import ChartQuery, Step
from history.record.daily_sums import COUNTS, WAIT_NAMES, WAITS

MOST_VALUES = 5
COLUMNS = {"model": "model", "key": "api_key_id", "agent": "agent", "source": "source", "owner": "owner_id"}

Sums = dict[str, Any]
NOTHING: Sums = dict.fromkeys(COUNTS, 0)


@dataclass(frozen=True, kw_only=True)
class Points:
    """`sums[value]` has one entry per point; '' is the whole where nothing is grouped."""

    days: tuple[date, ...]
    values: tuple[tuple[Any, str], ...]  # value → its words, the largest first
    sums: Mapping[Any, Sequence[Sums]] = field(default_factory=dict)

    def totals(self) -> Sums:
        rows = [sums for series in self.sums.values() for sums in series]
        return added(rows)


OTHERS = object()


def points_for(viewer: Viewer, asked: ChartQuery) -> Points:
    days = tuple(_days(asked))
    reach = reach_of(viewer, Purpose.LIST)
    if reach is None:
        return Points(days=days, values=(), sums={})
    if asked.mine and not isinstance(viewer, ApiKey):
        reach = Reach(owner_id=viewer.pk)
    rows = list(_rows(reach, asked))
    if asked.range == "all" and rows:
        days = tuple(_months(min(row["point"] for row in rows), asked.last))
    kept = _largest(rows) if asked.by else [""]
    places = {day: place for place, day in enumerate(days)}
    sums: dict[Any, list[Sums]] = {}
    for row in rows:
        value = row["value"] if row["value"] in kept else OTHERS
        series = sums.setdefault(value, [dict(NOTHING) for _day in days])
        if (place := places.get(row["point"])) is not None:
            for name in COUNTS:
                series[place][name] += row[f"n_{name}"]
    order = [value for value in [*kept, OTHERS] if value in sums]
    return Points(days=days, values=tuple((value, word) for value, word in _words(asked, order)), sums=sums)


def added(rows: Sequence[Sums]) -> Sums:
    return {name: sum(row[name] for row in rows) for name in COUNTS}


def wait_below(share: float, sums: Sums) -> float | None:
    """The time to the first token that so many of the answers stay below, from how many fell into each class."""
    numbers: list[int] = [sums[name] for name in WAIT_NAMES]
    wanted = share * sum(numbers)
    if not wanted:
        return None
    borders = (0.0, *WAITS, WAITS[-1])
    for number, low, high in zip(numbers, borders, borders[1:], strict=True):
        if number and wanted <= number:
            return low + (high - low) * wanted / number
        wanted -= number
    return WAITS[-1]


def _rows(reach: Reach, asked: ChartQuery) -> Iterator[Mapping[str, Any]]:
    """Summed by day; weeks and months are folded here, because SQLite would ask Python for each row's."""
    found = DayTally.objects.filter(reach.as_q(), day__gte=asked.first, day__lte=asked.last).order_by()
    found = found.exclude(source=Session.Source.NOTEBOOK)
    column = COLUMNS.get(asked.by)
    grouped = found.values(*([column] if column else []), "day")
    for row in grouped.annotate(**{f"n_{name}": Sum(name) for name in COUNTS}):
        yield {**row, "point": _begin(row["day"], asked.step), "value": row[column] if column else ""}


def _largest(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    sizes: dict[Any, int] = {}
    for row in rows:
        sizes[row["value"]] = sizes.get(row["value"], 0) + row["n_messages"]
    return sorted(sizes, key=lambda value: (-sizes[value], str(value)))[:MOST_VALUES]


def _words(asked: ChartQuery, values: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    known = _names(asked.by, [value for value in values if value is not OTHERS])
    for value in values:
        if value is OTHERS:
            yield value, _("others")
        else:
            yield value, known.get(value) or _nothing(asked.by)


def _names(by: str, values: Sequence[Any]) -> dict[Any, str]:
    if by == "key":
        return dict(ApiKey.objects.filter(pk__in=[pk for pk in values if pk]).values_list("pk", "name"))
    if by == "owner":
        return dict(get_user_model().objects.filter(pk__in=values).values_list("pk", "username"))
    if by == "source":
        return {value: str(word) for value, word in Session.Source.choices}
    return {value: value for value in values if value}


def _nothing(by: str) -> str:
    words = {"model": _("people and tools"), "agent": _("no agent"), "key": _("no key")}
    return words.get(by, _("all"))


def _days(asked: ChartQuery) -> Iterator[date]:
    if asked.step == "month":
        yield from _months(asked.last, asked.last)
        return
    day = _begin(asked.first, asked.step)
    while day <= asked.last:
        yield day
        day += timedelta(days=7 if asked.step == "week" else 1)


def _begin(day: date, step: Step) -> date:
    if step == "month":
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if step == "week" else day


def _months(first: date, last: date) -> Iterator[date]:
    month = first.replace(day=1)
    while month <= last:
        yield month
        month = (month + timedelta(days=32)).replace(day=1)
