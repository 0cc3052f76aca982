"""The page /charts/ and the headlines of /history/: counts by day and by model, key, agent, source or owner."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _, pgettext

from history.access.permissions import Purpose, Reach, Viewer, can_access_others, reach_of
from history.http import user_page
from history.models import ApiKey, DayTally, Session
from history.record.daily_count_rules import COUNTS, WAIT_NAMES, WAITS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartQuery:
    range: str = DEFAULT
    by: str = ""
    mine: bool = False

    @classmethod
    def parse(cls, values: QueryDict, *, sees_others: bool) -> "ChartQuery":
        """Unknown values mean the default."""
        by, name = values.get("by", ""), values.get("range", "")
        return cls(
            range=name if name in RANGES else DEFAULT,
            by=by if by in COLUMNS and (sees_others or by != "owner") else "",
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


Number = float | None
Measure = Callable[[Sums], Number]

WIDTH, HEIGHT = 600, 120
DOT = 4  # half the width of the line for a single value


@user_page
def charts(request: HttpRequest) -> HttpResponse:
    sees_others = can_access_others(request.user, Purpose.LIST)
    query = ChartQuery.parse(request.GET, sees_others=sees_others)
    points = read_points(request.user, query)
    totals = points.totals()
    ranges = [("7d", _("7 days")), ("30d", _("30 days")), ("90d", _("90 days")), ("1y", _("a year"))]
    ranges += [("all", _("everything"))]
    groupings = [("", _("total")), ("model", _("by model")), ("key", _("by key")), ("agent", _("by agent"))]
    groupings += [("source", _("by source")), *([("owner", _("by owner"))] if sees_others else [])]
    owners = [(False, _("all users")), (True, _("mine"))] if sees_others else []
    context = {
        "query": query,
        "charts": _draw_charts(points, totals, query),
        "is_empty": not any(totals.values()),
        "ranges": [(word, query.link(range=name), query.range == name) for name, word in ranges],
        "groupings": [(word, query.link(by=name), query.by == name) for name, word in groupings],
        "owners": [(word, query.link(mine=mine), query.mine == mine) for mine, word in owners],
    }
    return render(request, "history/charts/page.html", context)


class Series(NamedTuple):
    label: str
    number: int  # of its colour and dashes: the same value has the same ones in every chart
    values: tuple[Number, ...]
    line: str  # as points of an SVG polyline


class Chart(NamedTuple):
    name: str
    title: str
    unit: str  # count, tokens, seconds, dollars
    total_words: str
    total: Number
    series: tuple[Series, ...]
    rows: tuple[tuple[date, tuple[Number, ...]], ...]
    note: str


def _sum(*names: str) -> Measure:
    return lambda sums: float(sum(sums[name] for name in names))


def _tool_seconds(sums: Sums) -> Number:
    return float(sums["tool_milliseconds"] / 1000)


_tokens = _sum("input_tokens", "output_tokens")
_median, _slowest = partial(latency_percentile, 0.5), partial(latency_percentile, 0.95)


def _draw_charts(points: Points, totals: Sums, query: ChartQuery) -> list[Chart]:
    """With a grouping, a chart has a line for each value; without one, a line for each measure of `whole`."""
    whole: dict[str, list[tuple[str, Measure]]] = {
        "sessions": [(pgettext("sessions", "started"), _sum("sessions"))],
        "tokens": [(_("read"), _sum("input_tokens")), (_("written"), _sum("output_tokens"))],
        "errors": [(_("errors"), _sum("errors")), (_("answers cut short"), _sum("cut_short"))],
        "tools": [(_("time of tools"), _tool_seconds)],
        "latency": [(_("median"), _median), (_("95th percentile"), _slowest)],
    }

    def draw(name: str, title: str, unit: str, total_words: str, measure: Measure, note: str = "") -> Chart:
        if query.by:
            lines = [(word, [measure(sums) for sums in points.sums[value]]) for value, word in points.values]
        else:
            measures = whole.get(name, [(total_words, measure)])
            lines = [(word, [one(sums) for sums in points.whole()]) for word, one in measures]
        top = max((value for _word, values in lines for value in values if value), default=0)
        drawn = [
            Series(word, number, tuple(values), _line(values, top)) for number, (word, values) in enumerate(lines, 1)
        ]
        series = tuple(one for one in drawn if any(one.values)) or tuple(drawn[:1])
        rows = tuple(zip(points.days, zip(*(one.values for one in series), strict=True), strict=False))
        return Chart(name, title, unit, total_words, measure(totals), series, rows, note)

    is_answered = query.by in ("model", "agent")
    title, answers = (_("Answers"), _("answers")) if is_answered else (_("Messages"), _("messages"))
    note = _("A session has no model or agent when it starts.")
    charts = [
        draw("sessions", _("Sessions"), "count", _("sessions started"), _sum("sessions"), note if is_answered else ""),
        draw("messages", title, "count", answers, _sum("answers" if is_answered else "messages")),
        draw("tokens", _("Tokens"), "tokens", _("tokens"), _tokens),
        draw("errors", _("Errors"), "count", _("failed answers and tool calls"), _sum("errors")),
        draw("tools", _("Time in tools"), "seconds", _("in tools"), _tool_seconds),
        draw("latency", _("Time to first token"), "seconds", _("median (approx.)"), _median),
    ]
    return [*charts, draw("cost", _("Cost"), "dollars", _("cost"), _sum("cost"))] if totals["cost"] else charts


def _line(values: Sequence[Number], top: float | None = None) -> str:
    """Points of an SVG polyline: the largest number of the chart is at the top, missing values are left out."""
    top = max(filter(None, values), default=0) if top is None else top
    wide = max(1, len(values) - 1)
    places = [
        (WIDTH * place / wide, HEIGHT - (HEIGHT - 4) * value / top if top else HEIGHT)
        for place, value in enumerate(values)
        if value is not None
    ]
    if len(places) == 1:  # a line of one point cannot be seen
        [(x, y)] = places
        places = [(max(0, x - DOT), y), (min(WIDTH, x + DOT), y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


class Headline(NamedTuple):
    name: str
    number: Number
    line: str


def headlines(viewer: Viewer) -> list[Headline]:
    """Four numbers of the last thirty days, each with its line; none if nothing was recorded."""
    points = read_points(viewer, ChartQuery(range="30d"))
    totals, whole = points.totals(), points.whole()
    share = 100 * totals["cut_short"] / totals["answers"] if totals["answers"] else None
    numbers: list[tuple[str, Number, Measure]] = [
        ("sessions", totals["sessions"], _sum("sessions")),
        ("tokens", _tokens(totals), _tokens),
        ("latency", _median(totals), _median),
        ("cut_short", share, _sum("cut_short")),
    ]
    if not any(totals.values()):
        return []
    return [Headline(name, number, _line([measure(sums) for sums in whole])) for name, number, measure in numbers]
