"""The page /charts/ and the headlines of /history/: counts by day and by model, key, agent, source or owner."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history.access.permissions import Purpose, Viewer, can_access_others
from history.http import user_page
from history.pages.charts.points import ChartQuery, Points, Sums, latency_percentile, read_points

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
    values: list[Number]
    line: str  # as points of an SVG polyline


class Chart(NamedTuple):
    name: str
    title: str
    unit: str  # count, tokens, seconds, dollars
    total_words: str
    total: Number
    series: list[Series]
    rows: list[tuple[date, tuple[Number, ...]]]
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
        drawn = [Series(word, number, values, _line(values, top)) for number, (word, values) in enumerate(lines, 1)]
        series = [one for one in drawn if any(one.values)] or drawn[:1]
        rows = list(zip(points.days, zip(*(one.values for one in series), strict=True), strict=False))
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
