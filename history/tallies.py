"""Counts by day: what the charts are drawn from, so that a million messages cost no more than a thousand.

One row holds what an owner's sessions of one key, source, agent and model came to on one day (UTC). Rows are a
projection like the others: a day is counted anew from the entries that are stored, never added to, so counting twice
changes nothing and whatever is removed for good is gone from the counts as well.

A background job counts today and yesterday every minute. Whoever writes or removes something older marks its days
(`mark`), each with a row of its own in the same transaction: a mark that is not committed yet stays for the next time.
Copies that a fork made are not counted; the original is.

Tokens and cost of an answer stand with it. Calls that left no answer in the record (what a program asks beside its
conversation, whatever a key keeps no replies of) were paid for as well: theirs are counted on the day they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, Case, Count, F, Q, Sum, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from history.entries import CONVERSATION, ModelOutput
from history.models import DayTally, Exchange, Message, Session, StaleDay, ToolCall
from history.transactions import writing

WAITS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds to the first token, as borders of ten classes: the last one has no upper border."""
WAIT_NAMES = tuple(f"wait_{number}" for number in range(len(WAITS) + 1))
NAMES = ("owner_id", "api_key_id", "source", "agent", "model")
COUNTS = (
    "sessions", "messages", "answers", "cut_short", "errors", "input_tokens", "output_tokens", "cost", "tool_calls",
    "tool_seconds", *WAIT_NAMES,
)  # fmt: skip
ONE_DAY = timedelta(days=1)
MOST_MARKS = 10_000
_LOCK = 0x5061726C6580  # any number that no other advisory lock uses

Key = tuple[Any, ...]


def mark(moments: Iterable[datetime]) -> None:
    """Something of these days was written, changed or removed. The last two are counted in any case."""
    border = _today() - ONE_DAY
    days = {moment.astimezone(UTC).date() for moment in moments}
    StaleDay.objects.bulk_create([StaleDay(day=day) for day in sorted(days) if day < border])


def recount() -> int:
    """What the server runs every minute; returns how many days were counted."""
    newest = DayTally.objects.filter(day__lte=_today()).order_by("-day").values_list("day", flat=True).first()
    if newest is None:
        return rebuild()
    marks = list(StaleDay.objects.order_by("pk").values_list("pk", "day")[:MOST_MARKS])
    last_two = {_today() - ONE_DAY, _today()}  # also if nothing is left of them
    days = {day for _pk, day in marks} | last_two | {day for day in _days_since(newest) if day <= _today()}
    for day in sorted(days):
        count_day(day)
    StaleDay.objects.filter(pk__in=[pk for pk, _day in marks]).delete()
    return len(days)


def rebuild() -> int:
    """Count every day anew."""
    with writing():
        DayTally.objects.all().delete()
        StaleDay.objects.all().delete()
    days = list(_days_since(date.min))
    for day in days:
        count_day(day)
    return len(days)


def count_day(day: date) -> None:
    """SQLite has one writer at a time, and nobody must wait for their turn while a busy day is counted: there it is
    counted first. What is written meanwhile is counted the next time, being of the last two days or marked."""
    if connection.vendor != "postgresql":
        counted = _counted(day)
        with writing():
            _store(day, counted)
        return
    with writing():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        _store(day, _counted(day))


def _store(day: date, counted: Mapping[Key, dict[str, Any]]) -> None:
    """Nothing is written where nothing has changed."""
    stored = {_key(row): row for row in DayTally.objects.filter(day=day).values(*NAMES, *COUNTS)}
    if counted == {key: _numbers(row) for key, row in stored.items()}:
        return
    DayTally.objects.filter(day=day).delete()
    DayTally.objects.bulk_create(
        DayTally(day=day, **dict(zip(NAMES, key, strict=True)), **numbers) for key, numbers in counted.items()
    )


def _counted(day: date) -> dict[Key, dict[str, Any]]:
    counted: dict[Key, dict[str, Any]] = {}
    for row in _messages(day):
        counted[_key(row)] = _numbers(row)
    for row in _calls(day):
        numbers = counted.get(_key(row))
        if numbers is None:  # of messages that came while we counted
            continue
        numbers["errors"] += row["failed"]
        numbers |= {"tool_calls": row["calls"], "tool_seconds": round(row["seconds"] or 0.0, 3)}
    for row in _calls_without_answer(day):
        numbers = counted.setdefault(_key(row), _numbers({}))
        for name, spent in _numbers(row).items():
            numbers[name] += spent
    return {key: numbers for key, numbers in counted.items() if any(numbers.values())}


def _messages(day: date) -> Iterable[Mapping[str, Any]]:
    answers = Q(kind=ModelOutput.kind)
    waits = {
        name: Count("pk", filter=answers & Q(**_between(low, high)))
        for name, low, high in zip(WAIT_NAMES, (None, *WAITS), (*WAITS, None), strict=True)
    }
    rows = Message.objects.filter(_is_original("session"), **_within(day, "created_at"))
    return (
        rows.order_by()
        .values("agent", "model", **{name: F(f"session__{name}") for name in NAMES[:3]})
        .annotate(
            sessions=Count("pk", filter=Q(seq=1)),
            messages=Count("pk", filter=Q(kind__in=CONVERSATION)),
            answers=Count("pk", filter=answers),
            cut_short=Count("pk", filter=answers & ~Q(status=Message.Status.COMPLETE)),
            errors=Count("pk", filter=answers & Q(status=Message.Status.FAILED)),
            read=Sum("input_tokens"),
            written=Sum("output_tokens"),
            price=Sum("exchange__cost"),
            **waits,
        )
    )


def _calls(day: date) -> Iterable[Mapping[str, Any]]:
    rows = ToolCall.objects.filter(_is_original("message__session"), **_within(day, "message__created_at"))
    return (
        rows.order_by()
        .values(
            agent=F("message__agent"),
            model=F("message__model"),
            **{name: F(f"message__session__{name}") for name in NAMES[:3]},
        )
        .annotate(
            calls=Count("pk"), seconds=Sum("duration"), failed=Count("pk", filter=Q(status=ToolCall.Status.FAILED))
        )
    )


def _calls_without_answer(day: date) -> Iterable[Mapping[str, Any]]:
    """What calls to models took that no entry tells of. Those of turns that were trimmed went with them."""
    is_trimmed = Q(after__lt=F("session__trimmed_through"))
    rows = Exchange.objects.filter(~is_trimmed | Q(session=None), message=None, **_within(day, "started_at"))
    is_relayed = When(api_key__isnull=False, then=Value(Session.Source.RELAY))
    source = Coalesce("session__source", Case(is_relayed, default=Value(Session.Source.CHAT)))
    read, written = (Cast(KeyTextTransform(name, "usage"), BigIntegerField()) for name in _TOKENS)
    return (
        rows.order_by()
        .values("owner_id", "api_key_id", "agent", "model", source=source)
        .annotate(read=Sum(read), written=Sum(written), price=Sum("cost"))
    )


_TOKENS = ("input_tokens", "output_tokens")


def _is_original(session: str) -> Q:
    """Not a copy: those are older than the fork that they stand in."""
    at = "created_at" if session == "session" else "message__created_at"
    return Q(**{f"{session}__forked_from": None}) | Q(**{f"{at}__gte": F(f"{session}__created_at")})


def _between(low: float | None, high: float | None) -> dict[str, float]:
    return ({} if low is None else {"latency__gte": low}) | ({} if high is None else {"latency__lt": high})


def _within(day: date, name: str) -> dict[str, datetime]:
    until = {f"{name}__lt": _begin(day + ONE_DAY)} if day < date.max else {}
    return {f"{name}__gte": _begin(day)} | until


def _key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in NAMES)


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a row, from the entries or as they are stored."""
    other = {"input_tokens": "read", "output_tokens": "written", "cost": "price"}
    return {name: row.get(name, row.get(other.get(name, ""))) or 0 for name in COUNTS}


def _today() -> date:
    return timezone.now().astimezone(UTC).date()


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=UTC)


def _days_since(day: date) -> Iterator[date]:
    """The days on which anything was written or any model was called, from this one on."""
    while (at := _first_since(_begin(day))) is not None:
        day = at.astimezone(UTC).date()
        yield day
        if day == date.max:
            return
        day += ONE_DAY


def _first_since(moment: datetime) -> datetime | None:
    written = Message.objects.filter(created_at__gte=moment).order_by("created_at").values_list("created_at", flat=True)
    called = Exchange.objects.filter(started_at__gte=moment).order_by("started_at").values_list("started_at", flat=True)
    return min((*written[:1], *called[:1]), default=None)
