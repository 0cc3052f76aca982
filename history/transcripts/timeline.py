"""Timeline of a session: time of models, tools and users, by turn, without texts of the conversation.

Calls are measured in hundredths of their turn, so that turns of seconds and of hours are comparable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db.models import QuerySet, Sum
from django.db.models.functions import Coalesce

from history.entries import ModelInput, ModelOutput
from history.models import Exchange, Message, Session, ToolCall
from history.record.exchanges import end_of_work

TURNS = 20
MOST_CALLS = 40
MOST_TOGETHER = 1_000
NARROWEST = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One call. `start` and `width` are hundredths of its turn."""

    kind: str  # model or tool
    name: str
    seq: int
    began: datetime
    seconds: float
    status: str = ""
    wait: float | None = None
    start: float = 0
    width: float = 0

    @property
    def ended(self) -> datetime:
        return self.began + timedelta(seconds=self.seconds)

    def placed(self, began: datetime, whole: float, *, narrowest: float) -> "Span":
        """The span in a turn of `whole` seconds. A narrower one could not be seen."""
        start = min(100 * (self.began - began).total_seconds() / whole, 100 - narrowest)
        width = min(max(100 * self.seconds / whole, narrowest), 100 - start)
        return replace(self, start=round(start, 2), width=round(width, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineTurn:
    seq: int
    began: datetime
    seconds: float
    spans: tuple[Span, ...]
    left_out: int = 0
    waited: float | None = None  # for the user, since the previous turn ended

    @property
    def tool_seconds(self) -> float:
        """How long any tool ran: parallel ones take as long as the slowest."""
        tools = sorted((span for span in self.spans if span.kind == "tool"), key=lambda span: span.began)
        seconds, until = 0.0, tools[0].began if tools else self.began
        for span in tools:
            seconds += max(0.0, (span.ended - max(span.began, until)).total_seconds())
            until = max(until, span.ended)
        return seconds


@dataclass(frozen=True, slots=True)
class Share:
    kind: str
    seconds: float
    start: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    turns: tuple[TimelineTurn, ...]  # the newest first
    shares: tuple[Share, ...]  # of the whole session
    next_before: int | None


def timeline_of(session: Session, *, before: int | None = None) -> Timeline:
    inputs = Message.objects.on_path(session).filter(kind=ModelInput.kind, is_internal=False).order_by("-seq")
    if before is not None:
        inputs = inputs.filter(seq__lt=before)
    inputs_page = list(inputs.values_list("seq", "created_at")[: TURNS + 1])
    page = inputs_page[:TURNS][::-1]
    borders = [*(seq for seq, _at in page), before or session.version + 1]
    spans = _spans_of_turns(session, borders)
    turns = [_turn(seq, at, *found) for (seq, at), found in zip(page, spans, strict=True)]
    return Timeline(
        turns=tuple(_with_waits(turns))[::-1],
        shares=_shares(session),
        next_before=page[0][0] if len(inputs_page) > TURNS else None,
    )


def _spans_of_turns(session: Session, borders: Sequence[int]) -> list[tuple[list[Span], int]]:
    """The calls of each turn in the order of their start, and the number of calls left out."""
    answers = Message.objects.on_path(session).filter(kind=ModelOutput.kind).order_by("seq")
    together = list(_answers(answers.filter(seq__gt=borders[0], seq__lt=borders[-1]))[: MOST_TOGETHER + 1])
    turns: list[tuple[list[Mapping[str, Any]], int]] = []
    for first, until in pairwise(borders):
        if len(together) <= MOST_TOGETHER:
            rows = [row for row in together if first < row["seq"] < until]
            turns.append((rows[:MOST_CALLS], max(0, len(rows) - MOST_CALLS)))
        else:
            inside = answers.filter(seq__gt=first, seq__lt=until)
            turns.append((list(_answers(inside)[:MOST_CALLS]), max(0, inside.count() - MOST_CALLS)))
    others = [
        *_of_tools([row["pk"] for rows, _left in turns for row in rows]),
        *_without_answer(session, since=borders[0], until=borders[-1]),
    ]
    spans = []
    for (rows, left), (first, until) in zip(turns, pairwise(borders), strict=True):
        found = [*_of_models(rows), *(span for span in others if first <= span.seq < until)]
        found.sort(key=lambda span: (span.began, span.seq))
        spans.append((found[:MOST_CALLS], left + max(0, len(found) - MOST_CALLS)))
    return spans


def _without_answer(session: Session, *, since: int, until: int) -> Iterator[Span]:
    """Calls whose answers were not recorded, by the entry that they answer. Side calls answer none."""
    calls = Exchange.objects.filter(session=session).filter(message=None, ended_at__isnull=False)
    rows = calls.filter(after__gte=max(since, 1), after__lt=until).order_by("started_at")
    columns = ("model", "after", "started_at", end_of_work(), "end_reason")
    for model, seq, began, ended, reason in rows.values_list(*columns)[:MOST_TOGETHER]:
        status = Message.Status.COMPLETE if reason == "done" else Message.Status.INTERRUPTED
        seconds = max(0.0, ((ended or began) - began).total_seconds())
        yield Span(kind="model", name=model, seq=seq, began=began, seconds=seconds, status=status)


def _answers(answers: QuerySet[Message]) -> Any:
    columns = ("pk", "seq", "model", "created_at", "duration", "latency", "status")
    return answers.values(*columns, "exchange__started_at", worked_until=end_of_work("exchange__"))


def _of_models(rows: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    """From the start of the call, if it was ours; else an answer ends when it was stored."""
    for row in rows:
        began, ended = row["exchange__started_at"], row["worked_until"]
        if not began and row["duration"] is None and not row["model"]:
            continue  # reported by a program, without a call here
        if not (began and ended):
            began, ended = row["created_at"] - timedelta(seconds=row["duration"] or 0), row["created_at"]
        facts = {"name": row["model"], "seq": row["seq"], "status": row["status"], "wait": row["latency"]}
        yield Span(kind="model", began=began, seconds=max(0.0, (ended - began).total_seconds()), **facts)


def _of_tools(message_ids: Sequence[int]) -> Iterator[Span]:
    calls = ToolCall.objects.filter(message_id__in=message_ids, duration__isnull=False).order_by("pk")
    columns = ("name", "message__seq", Coalesce("started_at", "created_at"), "duration", "status")
    for name, seq, began, duration, status in calls.values_list(*columns)[:MOST_TOGETHER]:
        seconds = max(0.0, duration or 0.0)
        yield Span(kind="tool", name=name, seq=seq, began=began, seconds=seconds, status=status)


def _turn(seq: int, at: datetime, spans: Sequence[Span], left_out: int) -> TimelineTurn:
    began = min([at, *(span.began for span in spans)])
    whole = max((max([at, *(span.ended for span in spans)]) - began).total_seconds(), 0.001)
    placed = tuple(span.placed(began, whole, narrowest=NARROWEST) for span in spans)
    return TimelineTurn(seq=seq, began=at, seconds=whole if spans else 0.0, spans=placed, left_out=left_out)


def _with_waits(turns: Sequence[TimelineTurn]) -> Iterator[TimelineTurn]:
    """The waiting time before each turn; unknown for the oldest turn on a page."""
    yield from turns[:1]
    for earlier, later in pairwise(turns):
        ended = max([earlier.began, *(span.ended for span in earlier.spans)])
        yield replace(later, waited=max(0.0, (later.began - ended).total_seconds()))


def _shares(session: Session) -> tuple[Share, ...]:
    """Shares of the whole session with all branches. Time of neither model nor tool is the users'."""
    answers = Message.objects.of(session).filter(kind=ModelOutput.kind)
    model = answers.aggregate(total=Sum("duration", default=0.0))["total"]
    model += sum(span.seconds for span in _without_answer(session, since=1, until=session.version + 1))
    tools = ToolCall.objects.filter(session=session).aggregate(total=Sum("duration", default=0.0))["total"]
    whole = max((session.last_activity_at - session.created_at).total_seconds(), model + tools)
    if not whole:
        return ()
    people = max(0.0, whole - model - tools)
    shares, start = [], 0.0
    for kind, seconds in (("model", model), ("tool", tools), ("people", people)):
        width = 100 * seconds / whole
        shares.append(Share(kind, seconds, round(start, 2), round(width, 2)))
        start += width
    return tuple(shares)
