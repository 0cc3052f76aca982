"""The page /charts/ and the headlines of /history/: counts by day and by model, key, agent, source or owner.

Range and grouping are in the URL; every chart has a table of its numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access.permissions import Purpose, Viewer, can_access_others
from history.pages.charts.points import ChartQuery, Points, Sums, latency_percentile, read_points

Number = float | None
Measure = Callable[[Sums], Number]

WIDTH, HEIGHT = 600, 120
DOT = 4  # half the width of the line for a single value


@login_required
@never_cache
@require_safe
def charts(request: HttpRequest) -> HttpResponse:
    sees_others = can_access_others(request.user, Purpose.LIST)
    query = ChartQuery.parse(request.GET, sees_others=sees_others)
    context = {
        "picture": picture_for(request.user, query),
        "ranges": [(word, query.link(range=name), query.range == name) for name, word in _ranges()],
        "groupings": [(word, query.link(by=name), query.by == name) for name, word in _groupings(sees_others)],
        "owners": [
            (_("all users"), query.link(mine=False), not query.mine),
            (_("mine"), query.link(mine=True), query.mine),
        ]
        if sees_others
        else [],
    }
    return render(request, "history/charts/page.html", context)


def _ranges() -> list[tuple[str, str]]:
    return [
        ("7d", _("7 days")),
        ("30d", _("30 days")),
        ("90d", _("90 days")),
        ("1y", _("a year")),
        ("all", _("everything")),
    ]


def _groupings(sees_others: bool) -> list[tuple[str, str]]:
    words = [("", _("total")), ("model", _("by model")), ("key", _("by key")), ("agent", _("by agent"))]
    words += [("source", _("by source"))]
    return [*words, ("owner", _("by owner"))] if sees_others else words


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    label: str
    number: int  # of its colour and dashes: the same value has the same ones in every chart
    values: tuple[Number, ...]
    line: str = ""  # as points of an SVG polyline


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    name: str
    title: str
    unit: str  # count, tokens, seconds, dollars
    total: Number
    total_words: str
    series: tuple[Series, ...]
    rows: tuple[tuple[date, tuple[Number, ...]], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    query: ChartQuery
    charts: tuple[Chart, ...]
    is_empty: bool


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a chart shows: the `whole` measures without a grouping, `measure` for each value with one and in total."""

    name: str
    title: str
    unit: str
    whole: list[tuple[str, Measure]]
    measure: Measure
    total_words: str
    note: str = ""


def _sum(name: str) -> Measure:
    return lambda sums: float(sums[name])


def _tool_seconds(sums: Sums) -> Number:
    return float(sums["tool_milliseconds"] / 1000)


def _tokens(sums: Sums) -> Number:
    return float(sums["input_tokens"] + sums["output_tokens"])


def _median(sums: Sums) -> Number:
    return latency_percentile(0.5, sums)


def picture_for(viewer: Viewer, query: ChartQuery) -> Picture:
    points = read_points(viewer, query)
    totals = points.totals()
    charts = tuple(_chart(kind, points, totals, query) for kind in _kinds(query, totals))
    return Picture(query=query, charts=charts, is_empty=not any(totals.values()))


def _kinds(query: ChartQuery, totals: Sums) -> list[_Kind]:
    is_answered = query.by in ("model", "agent")
    messages = _sum("answers" if is_answered else "messages")
    note = _("A session starts with a user or program, before any model or agent takes part.")
    return [
        _Kind("sessions", _("Sessions"), "count", [(pgettext("sessions", "started"), _sum("sessions"))],
              _sum("sessions"), _("sessions started"), note if is_answered else ""),
        _Kind("messages", _("Answers") if is_answered else _("Messages"), "count",
              [(_("messages"), _sum("messages"))], messages, _("answers") if is_answered else _("messages")),
        _Kind("tokens", _("Tokens"), "tokens",
              [(_("read"), _sum("input_tokens")), (_("written"), _sum("output_tokens"))], _tokens, _("tokens")),
        _Kind("errors", _("Errors"), "count",
              [(_("errors"), _sum("errors")), (_("answers cut short"), _sum("cut_short"))], _sum("errors"),
              _("failed answers and tool calls")),
        _Kind("tools", _("Time of tools"), "seconds", [(_("time of tools"), _tool_seconds)], _tool_seconds,
              _("in tools")),
        _Kind("latency", _("Time to the first token"), "seconds",
              [(_("median"), _median), (_(
                  "95th percentile"
              ), lambda sums: latency_percentile(0.95, sums))],
              _median, _("median (approx.)")),
        *([_Kind("cost", _("Cost"), "dollars", [(_("cost"), _sum("cost"))], _sum("cost"), _("cost"))]
          if totals["cost"] else []),
    ]  # fmt: skip


def _chart(kind: _Kind, points: Points, totals: Sums, query: ChartQuery) -> Chart:
    if query.by:
        named = [(word, [kind.measure(sums) for sums in points.sums[value]]) for value, word in points.values]
    else:
        named = [(word, [measure(sums) for sums in points.whole()]) for word, measure in kind.whole]
    top = max((value for _word, values in named for value in values if value), default=0)
    drawn = [
        Series(label=word, number=number, values=tuple(values), line=_line(values, top))
        for number, (word, values) in enumerate(named, 1)
    ]
    series = tuple(one for one in drawn if any(one.values)) or tuple(drawn[:1])
    rows = zip(points.days, zip(*(one.values for one in series), strict=True) if series else (), strict=False)
    return Chart(
        name=kind.name,
        title=kind.title,
        unit=kind.unit,
        total=kind.measure(totals),
        total_words=kind.total_words,
        series=series,
        rows=tuple(rows),
        note=kind.note,
    )


def _line(values: Sequence[Number], top: float) -> str:
    """Points of an SVG polyline: the largest number of the chart is at the top, missing values are left out."""
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


@dataclass(frozen=True, slots=True)
class Headline:
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
    return [Headline(name, number, _drawn([measure(sums) for sums in whole])) for name, number, measure in numbers]


def _drawn(values: Sequence[Number]) -> str:
    return _line(values, max((value for value in values if value), default=0))
