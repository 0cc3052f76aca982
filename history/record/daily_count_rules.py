"""Sums of messages, tool calls and exchanges by day, owner, key, source, agent and model: what is counted, and added.

No row counts twice. A visible message counts on the day it was written, unless it is a copy in a fork; a tool call and
the cost of an exchange count with their message. An exchange without a message (a side call, a key that stores no
replies) counts with its tokens and cost on the day it started, unless its turn was trimmed.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import BigIntegerField, Case, Count, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Cast, Coalesce, Floor, Greatest, Least, TruncDate

from history.db import bulk
from history.entries import MESSAGES, ModelOutput
from history.models import DayTally, Exchange, Message, Session, ToolCall

WAITS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds to the first token, as borders of ten classes: the last one has no upper border."""
WAIT_NAMES = tuple(f"wait_{number}" for number in range(len(WAITS) + 1))
NAMES = ("owner_id", "api_key_id", "source", "agent", "model")
COUNTS = (
    "sessions", "messages", "answers", "cut_short", "errors", "input_tokens", "output_tokens", "cost", "tool_calls",
    "tool_milliseconds", *WAIT_NAMES,
)  # fmt: skip
ROWS_PER_STATEMENT = 100
LONGEST_CALL = 1e9  # seconds; a file may claim anything
MOST_TOKENS = 2_147_483_647

Numbers = dict[str, Any]
Rows = Iterable[Mapping[str, Any]]


class Key(NamedTuple):
    day: date
    owner_id: int
    api_key_id: int | None
    source: str
    agent: str
    model: str

    @property
    def order(self) -> tuple[date | int | str, ...]:
        """One order for all writers, against deadlocks."""
        return (*self[:2], self.api_key_id or 0, *self[3:])


Sums = dict[Key, Numbers]


def milliseconds(seconds: float | None) -> int:
    """Whole ones, because sums of floats depend on their order. The SQL below computes the same."""
    return math.floor(min(max(seconds, 0.0), LONGEST_CALL) * 1000 + 0.5) if seconds is not None else 0


def sums_of_day(day: date) -> Sums:
    messages = Message.objects.filter(**_within(day, "created_at"))
    answered = Exchange.objects.filter(**_within(day, "message__created_at"))
    unanswered = Exchange.objects.filter(message=None, **_within(day, "started_at"))
    found = [_messages(messages, day), _calls(messages, day), _answered(answered, day), _unanswered(unanswered, day)]
    return {key: numbers for key, numbers in _sums_of(found).items() if any(numbers.values())}


def sums_of_rows(messages: QuerySet[Message] | None, exchanges: QuerySet[Exchange] | None) -> Sums:
    found: list[Rows] = []
    if messages is not None:
        found += [_messages(messages), _calls(messages)]
    if exchanges is not None:
        found += [_answered(exchanges), _unanswered(exchanges)]
    return _sums_of(found)


def _sums_of(found: Iterable[Rows]) -> Sums:
    sums: Sums = {}
    for row in chain.from_iterable(found):
        numbers = sums.setdefault(Key(*(row[f"k_{name}"] for name in Key._fields)), dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            numbers[name] += row.get(f"n_{name}") or 0
    return sums


def _messages(messages: QuerySet[Message], day: date | None = None) -> Rows:
    answers = Q(kind=ModelOutput.kind)
    waits = {
        f"n_{name}": Count("pk", filter=answers & Q(**_between(low, high)))
        for name, low, high in zip(WAIT_NAMES, (None, *WAITS), (*WAITS, None), strict=True)
    }
    return _grouped(
        messages.filter(_is_original("")),
        "",
        day,
        n_sessions=Count("pk", filter=Q(seq=1)),
        n_messages=Count("pk", filter=Q(kind__in=MESSAGES, is_internal=False)),
        n_answers=Count("pk", filter=answers),
        n_cut_short=Count("pk", filter=answers & ~Q(status=Message.Status.COMPLETE)),
        n_errors=Count("pk", filter=answers & Q(status=Message.Status.FAILED)),
        n_input_tokens=Sum("input_tokens"),
        n_output_tokens=Sum("output_tokens"),
        **waits,
    )


def _calls(messages: QuerySet[Message], day: date | None = None) -> Rows:
    calls = ToolCall.objects.filter(_is_original("message__"), message__in=messages.order_by())
    seconds = Least(Greatest(F("duration"), Value(0.0)), Value(LONGEST_CALL))
    milliseconds = Cast(Floor(seconds * 1000 + 0.5), BigIntegerField())
    errors = Count("pk", filter=Q(status=ToolCall.Status.FAILED))
    sums = {"n_tool_calls": Count("pk"), "n_tool_milliseconds": Sum(milliseconds), "n_errors": errors}
    return _grouped(calls, "message__", day, **sums)


def _answered(exchanges: QuerySet[Exchange], day: date | None = None) -> Rows:
    answered = exchanges.filter(_is_original("message__"), message__isnull=False)
    return _grouped(answered, "message__", day, n_cost=Sum("cost"))


def _unanswered(exchanges: QuerySet[Exchange], day: date | None = None) -> Rows:
    """Row by row, because the usage that a provider reports need not be a number."""
    is_trimmed = Q(after__lt=F("session__trimmed_through"))
    is_relayed = When(api_key__isnull=False, then=Value(Session.Source.RELAY))
    rows = exchanges.filter(~is_trimmed | Q(session=None), message=None).exclude(usage={}, cost=0).order_by()
    columns: dict[str, Any] = {f"k_{name}": F(name) for name in ("owner_id", "api_key_id", "agent", "model")}
    columns["k_source"] = Coalesce("session__source", Case(is_relayed, default=Value(Session.Source.CHAT)))
    columns |= {"k_day": _day(day, "started_at"), "n_cost": F("cost")}
    for row in rows.values("usage", **columns).iterator():
        read, written = _tokens(row["usage"], "input_tokens"), _tokens(row["usage"], "output_tokens")
        yield {**row, "n_input_tokens": read, "n_output_tokens": written}


def _tokens(usage: object, name: str) -> int:
    number = usage.get(name) if isinstance(usage, dict) else 0
    return max(0, min(number, MOST_TOKENS)) if isinstance(number, int) else 0


def _grouped(rows: QuerySet[Any], message: str, day: date | None, **sums: Any) -> Rows:
    """Sums of rows that belong to a message, by their key. `message` is the path to it."""
    keys = {f"k_{name}": F(f"{message}session__{name}") for name in NAMES[:3]}
    keys |= {f"k_{name}": F(f"{message}{name}") for name in NAMES[3:]}
    grouped: Rows = rows.order_by().values(k_day=_day(day, f"{message}created_at"), **keys).annotate(**sums)
    return grouped


def _day(day: date | None, name: str) -> Any:
    return TruncDate(name, tzinfo=UTC) if day is None else Value(day)


def _is_original(message: str) -> Q:
    """Not a copy. Copies are older than the fork that they are in."""
    session = f"{message}session__"
    return Q(**{f"{session}forked_from": None}) | Q(**{f"{message}created_at__gte": F(f"{session}created_at")})


def _between(low: float | None, high: float | None) -> dict[str, float]:
    return ({} if low is None else {"latency__gte": low}) | ({} if high is None else {"latency__lt": high})


def _within(day: date, name: str) -> dict[str, datetime]:
    until = {f"{name}__lt": _begin(day + timedelta(days=1))} if day < date.max else {}
    return {f"{name}__gte": _begin(day)} | until


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=UTC)


def days_with_rows() -> set[date]:
    written = Message.objects.order_by().values_list(_day(None, "created_at"), flat=True)
    called = Exchange.objects.order_by().values_list(_day(None, "started_at"), flat=True)
    return {*written.distinct(), *called.distinct()}


def add(items: list[tuple[Key, Numbers]]) -> None:
    """Add all changes of a transaction in one statement."""
    sums: defaultdict[Key, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(COUNTS, 0)))
    for key, numbers in items:
        sums[key].update(numbers)
    changed = [(key, sums[key]) for key in sorted(sums, key=lambda key: key.order) if any(sums[key].values())]
    for start in range(0, len(changed), ROWS_PER_STATEMENT):
        batch = changed[start : start + ROWS_PER_STATEMENT]
        ids = _upsert(batch)
        if any(number < 0 for _key, total in batch for number in total.values()):
            # Only rows that this transaction has locked already: those of others might wait for ours.
            DayTally.objects.filter(pk__in=ids, **dict.fromkeys(COUNTS, 0)).delete()


def _upsert(changed: Sequence[tuple[Key, Counter[str]]]) -> list[int]:
    rows = (bulk.prepare_values(DayTally, _VALUES, (*key, *numbers.values())) for key, numbers in changed)
    row = f"({', '.join(['%s'] * len(_VALUES))}, 1, 0)"
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT.format(rows=", ".join([row] * len(changed))), list(chain.from_iterable(rows)))
        return [pk for (pk,) in cursor.fetchall()]


_VALUES = ("day", *NAMES, *COUNTS)
_COLUMNS = ", ".join((*_VALUES, "revision", "checked_revision"))
_ADDED = {name: f"kept.{name} + excluded.{name}" for name in (*COUNTS, "revision")}
_ADDED["cost"] = f"ROUND({_ADDED['cost']}, 6)"  # SQLite adds it up as a floating-point number
_SUMS = ", ".join(f"{name} = {added}" for name, added in _ADDED.items())
_UPSERT = (
    f"INSERT INTO history_daytally AS kept ({_COLUMNS}) VALUES {{rows}} "  # noqa: S608 - names of our own
    f"ON CONFLICT (day, owner_id, (COALESCE(api_key_id, 0)), source, agent, model) DO UPDATE SET {_SUMS} RETURNING id"
)
