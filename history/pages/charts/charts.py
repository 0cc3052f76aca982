"""What is drawn: per chart its series with their numbers, the words beside it, and lines for who has no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.utils.translation import gettext as _

from history.access.permissions import Viewer
from history.pages.charts.points import Points, Sums, added, points_for, wait_below
from history.pages.charts.query import ChartQuery

Number = float | None
Measure = Callable[[Sums], Number]

WIDTH, HEIGHT = 600, 120
DOT = 4  # half as wide as what is drawn where there is a single number


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
    asked: ChartQuery
    charts: tuple[Chart, ...]
    is_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A chart to be: measures that are drawn where nothing is grouped, and the one that is drawn per value."""

    name: str
    title: str
    unit: str
    whole: tuple[tuple[str, Measure], ...]
    each: Measure
    total: Measure
    total_words: str
    note: str = ""


def picture_for(viewer: Viewer, asked: ChartQuery) -> Picture:
    points = points_for(viewer, asked)
    totals = points.totals()
    charts = tuple(_chart(kind, points, totals, asked) for kind in _kinds(asked, totals))
    return Picture(asked=asked, charts=charts, is_empty=not any(totals.values()))


def _sum(name: str) -> Measure:
    return lambda sums: float(sums[name])


def _tool_seconds(sums: Sums) -> Number:
    return float(sums["tool_milliseconds"] / 1000)


def _tokens(sums: Sums) -> Number:
    return float(sums["input_tokens"] + sums["output_tokens"])


def _median(sums: Sums) -> Number:
    return wait_below(0.5, sums)


def _kinds(asked: ChartQuery, totals: Sums) -> list[_Kind]:
    answered = asked.by in ("model", "agent")
    kinds = [
        _Kind(
            name="sessions",
            title=_("Sessions"),
            unit="count",
            whole=((_("begun"), _sum("sessions")),),
            each=_sum("sessions"),
            total=_sum("sessions"),
            total_words=_("sessions begun"),
            note=_("A session begins with what a person or a program says, before any model or agent.")
            if answered
            else "",
        ),
        _Kind(
            name="messages",
            title=_("Answers") if answered else _("Messages"),
            unit="count",
            whole=((_("messages"), _sum("messages")),),
            each=_sum("answers" if answered else "messages"),
            total=_sum("answers" if answered else "messages"),
            total_words=_("answers") if answered else _("messages"),
        ),
        _Kind(
            name="tokens",
            title=_("Tokens"),
            unit="tokens",
            whole=((_("read"), _sum("input_tokens")), (_("written"), _sum("output_tokens"))),
            each=_tokens,
            total=_tokens,
            total_words=_("tokens"),
        ),
        _Kind(
            name="errors",
            title=_("Errors"),
            unit="count",
            whole=((_("errors"), _sum("errors")), (_("answers cut short"), _sum("cut_short"))),
            each=_sum("errors"),
            total=_sum("errors"),
            total_words=_("failed answers and tool calls"),
        ),
        _Kind(
            name="tools",
            title=_("Time of tools"),
            unit="seconds",
            whole=((_("time of tools"), _tool_seconds),),
            each=_tool_seconds,
            total=_tool_seconds,
            total_words=_("in tools"),
        ),
        _Kind(
            name="latency",
            title=_("Time to the first token"),
            unit="seconds",
            whole=((_("half of the answers"), _median), (_("95 of 100"), lambda sums: wait_below(0.95, sums))),
            each=_median,
            total=_median,
            total_words=_("median, about"),
        ),
    ]
    if totals["cost"]:
        cost = _sum("cost")
        words = _("cost")
        kinds.append(
            _Kind(
                name="cost", title=_("Cost"), unit="dollars", whole=((words, cost),), each=cost, total=cost,
                total_words=words,
            )
        )  # fmt: skip
    return kinds


def _chart(kind: _Kind, points: Points, totals: Sums, asked: ChartQuery) -> Chart:
    if asked.by:
        named = [(word, [kind.each(sums) for sums in points.sums[value]]) for value, word in points.values]
    else:
        named = [(word, [measure(sums) for sums in _whole(points)]) for word, measure in kind.whole]
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
        total=kind.total(totals),
        total_words=kind.total_words,
        series=series,
        rows=tuple(rows),
        note=kind.note,
    )


def _whole(points: Points) -> Sequence[Sums]:
    return points.sums.get("") or [added([]) for _day in points.days]


def _line(values: Sequence[Number], top: float) -> str:
    """From left to right, the largest number of the chart at the top; what nobody has measured is left out."""
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
    number: Any
    line: str


def headlines(viewer: Viewer) -> list[Headline]:
    """The last thirty days in four numbers, each with its line; none where nothing was recorded."""
    points = points_for(viewer, ChartQuery(range="30d"))
    totals, whole = points.totals(), _whole(points)
    share = 100 * totals["cut_short"] / totals["answers"] if totals["answers"] else None
    numbers: list[tuple[str, Any, Measure]] = [
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
