"""Numbers of a chart: the query of a /charts/ URL, and daily counts added up to its points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, timedelta
from typing import Any, Literal
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.db.models import Sum
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, Reach, Viewer, reach_of
from history.models import ApiKey, DayTally, Session
from history.record.daily_sums import COUNTS, WAIT_NAMES, WAITS

Step = Literal["day", "week", "month"]

DEFAULT = "30d"
MOST_MONTHS = 96
STEP_DAYS: dict[Step, int] = {"day": 1, "week": 7, "month": 31}  # at most
# Name → days, and the step of one point: at most about ninety points.
RANGES: dict[str, tuple[int, Step]] = {
    "7d": (7, "day"), "30d": (30, "day"), "90d": (90, "day"), "1y": (365, "week"), "all": (31 * MOST_MONTHS, "month"),
}  # fmt: skip
MOST_VALUES = 5
COLUMNS = {"model": "model", "key": "api_key_id", "agent": "agent", "source": "source", "owner": "owner_id"}
Sums = dict[str, Any]
NOTHING: Sums = dict.fromkeys(COUNTS, 0)
OTHERS = object()
GROUPINGS = ("", "model", "key", "agent", "source", "owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartQuery:
    range: str = DEFAULT
    by: str = ""
    mine: bool = False

    @classmethod
    def parse(cls, values: QueryDict, *, sees_others: bool) -> ChartQuery:
        """Unknown values mean the default."""
        by, name = values.get("by", ""), values.get("range", "")
        return cls(
            range=name if name in RANGES else DEFAULT,
            by=by if by in GROUPINGS and (sees_others or by != "owner") else "",
            mine=sees_others and values.get("whose") == "me",
        )

    @property
    def step(self) -> Step:
        return RANGES[self.range][1]

    @property
    def last(self) -> date:
        return timezone.now().astimezone(UTC).date()

    @property
    def first(self) -> date:
        return self.last - timedelta(days=RANGES[self.range][0] - 1)

    def link(self, **changes: Any) -> str:
        query = replace(self, **changes)
        name = query.range if query.range != DEFAULT else ""
        pairs = {"range": name, "by": query.by, "whose": "me" if query.mine else ""}
        return "?" + urlencode({name: value for name, value in pairs.items() if value})


@dataclass(frozen=True, kw_only=True)
class Points:
    """`sums[value]` has one entry per day of `days`; without a grouping the only value is ''."""

    days: tuple[date, ...]
    values: tuple[tuple[Any, str], ...]  # value → label, the largest first
    sums: Mapping[Any, Sequence[Sums]] = field(default_factory=dict)

    def totals(self) -> Sums:
        return {name: sum(sums[name] for series in self.sums.values() for sums in series) for name in COUNTS}

    def whole(self) -> Sequence[Sums]:
        return self.sums.get("") or [dict(NOTHING) for _day in self.days]


def read_points(viewer: Viewer, query: ChartQuery) -> Points:
    reach = reach_of(viewer, Purpose.LIST)
    if reach and query.mine and not isinstance(viewer, ApiKey):
        reach = Reach(owner_id=viewer.pk)
    rows = list(_rows(reach, query)) if reach else []
    first = min((row["point"] for row in rows), default=query.last) if query.range == "all" else query.first
    days = tuple(_days(first, query.last, query.step))
    sizes: Counter[Any] = Counter()
    for row in rows:
        sizes[row["value"]] += row["n_messages"]
    largest = sorted(sizes, key=lambda value: (-sizes[value], str(value)))[:MOST_VALUES] if query.by else [""]
    places = {day: place for place, day in enumerate(days)}
    sums: dict[Any, list[Sums]] = {}
    for row in rows:
        value = row["value"] if row["value"] in largest else OTHERS
        series = sums.setdefault(value, [dict(NOTHING) for _day in days])
        if (place := places.get(row["point"])) is not None:
            for name in COUNTS:
                series[place][name] += row[f"n_{name}"]
    order = [value for value in [*largest, OTHERS] if value in sums]
    return Points(days=days, values=tuple(_labels(query, order)), sums=sums)


def latency_percentile(share: float, sums: Sums) -> float | None:
    """Time to the first token, estimated from the number of answers in each class."""
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


def _rows(reach: Reach, query: ChartQuery) -> Iterator[Mapping[str, Any]]:
    """Sums by day. Weeks and months are added up here, because SQLite would call Python for the week of each row."""
    rows = DayTally.objects.filter(reach.as_q(), day__gte=query.first, day__lte=query.last).order_by()
    rows = rows.exclude(source=Session.Source.NOTEBOOK)
    column = COLUMNS.get(query.by)
    grouped = rows.values(*([column] if column else []), "day")
    for row in grouped.annotate(**{f"n_{name}": Sum(name) for name in COUNTS}):
        yield {**row, "point": _start_of_step(row["day"], query.step), "value": row[column] if column else ""}


def _labels(query: ChartQuery, values: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    names = _names(query.by, [value for value in values if value is not OTHERS])
    without = {"model": _("users and tools"), "agent": _("no agent"), "key": _("no key")}.get(query.by, _("all"))
    for value in values:
        yield value, _("others") if value is OTHERS else names.get(value) or without


def _names(by: str, values: Sequence[Any]) -> dict[Any, str]:
    if by == "key":
        return dict(ApiKey.objects.filter(pk__in=[pk for pk in values if pk]).values_list("pk", "name"))
    if by == "owner":
        return dict(get_user_model().objects.filter(pk__in=values).values_list("pk", "username"))
    if by == "source":
        return {value: str(word) for value, word in Session.Source.choices}
    return {value: value for value in values if value}


def _days(first: date, last: date, step: Step) -> Iterator[date]:
    """The first day of each step."""
    day = _start_of_step(first, step)
    while day <= last:
        yield day
        day = _start_of_step(day + timedelta(days=STEP_DAYS[step]), step)


def _start_of_step(day: date, step: Step) -> date:
    if step == "month":
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if step == "week" else day
