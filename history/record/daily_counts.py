"""Daily counts of sessions, messages, tokens, cost and tool calls (`DayTally`), for the charts.

The transaction that changes the record adds the difference as its last statement, so the counts are right at every
commit. Inserted rows are counted in Python; other changes are wrapped in `recounting`. `daily_count_rules` has the
rules and adds the sums, and `check` compares finished days with a recount.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, timedelta

from django.db import connection
from django.db.models import F, QuerySet
from django.utils import timezone

from history.db.transactions import run_last, writing
from history.entries import ModelOutput
from history.models import DayTally, Exchange, Message, Session, StaleDay, ToolCall
from history.record import daily_count_rules
from history.record.daily_count_rules import COUNTS, NAMES, WAIT_NAMES, WAITS, Key, Numbers, sums_of_day, sums_of_rows

logger = logging.getLogger(__name__)

_TRIES = 3


def count_message(message: Message) -> None:
    """Count an inserted message. Its tool calls are counted apart."""
    key = _key_of(message.session, message)
    if key is None:
        return
    numbers: Numbers = {
        "sessions": message.seq == 1,
        "messages": message.is_message,
        "input_tokens": message.input_tokens,
        "output_tokens": message.output_tokens,
    }
    if message.kind == ModelOutput.kind:
        status, statuses = message.status, Message.Status
        numbers |= {"answers": 1, "cut_short": status != statuses.COMPLETE, "errors": status == statuses.FAILED}
        if message.latency is not None:
            numbers[WAIT_NAMES[bisect_right(WAITS, message.latency)]] = 1
    run_last(daily_count_rules.add, (key, numbers))


Outcome = tuple[str, float | None]  # status and duration of a tool call


def count_call(session: Session, call: ToolCall, *, before: Outcome | None = None) -> None:
    """Count an inserted tool call, or one whose outcome was `before`."""
    key = _key_of(session, call.message)
    if key is not None:
        run_last(daily_count_rules.add, (key, _call_numbers((call.status, call.duration), sign=1)))
        if before is not None:
            run_last(daily_count_rules.add, (key, _call_numbers(before, sign=-1)))


def _call_numbers(outcome: Outcome, *, sign: int) -> Numbers:
    status, duration = outcome
    errors = sign * (status == ToolCall.Status.FAILED)
    return {"tool_calls": sign, "errors": errors, "tool_milliseconds": sign * daily_count_rules.milliseconds(duration)}


@contextmanager
def recounting(
    *, messages: QuerySet[Message] | None = None, exchanges: QuerySet[Exchange] | None = None
) -> Iterator[None]:
    """Count what the block changes in these rows, as the difference between before and after.

    The querysets must find the same rows, or those that are left, after the block. Messages must be in sessions that
    the caller has locked or that accept no entries; exchanges are locked here.
    """
    with writing():
        if exchanges is not None and connection.features.has_select_for_update:
            list(exchanges.order_by("pk").select_for_update(of=("self",)).values_list("pk"))
        for key, numbers in sums_of_rows(messages, exchanges).items():
            run_last(daily_count_rules.add, (key, {name: -number for name, number in numbers.items()}))
        yield
        for item in sums_of_rows(messages, exchanges).items():
            run_last(daily_count_rules.add, item)


def count_exchanges(exchanges: QuerySet[Exchange]) -> None:
    """Count rows that were not counted before."""
    for item in sums_of_rows(None, exchanges).items():
        run_last(daily_count_rules.add, item)


@contextmanager
def repairing(messages: QuerySet[Message]) -> Iterator[None]:
    """Mark days for a recount if the block changes their sums: it is unknown whether the damage was counted."""
    with writing():
        before = sums_of_rows(messages, None)
        yield
        after = sums_of_rows(messages, None)
        days = {key.day for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        StaleDay.objects.bulk_create(StaleDay(day=day) for day in sorted(days))


@contextmanager
def recounting_copies(forks: QuerySet[Session]) -> Iterator[None]:
    """Count the copies in these forks when they gain or lose the session that they were made from."""
    with writing():
        ids = list(forks.order_by("pk").select_for_update(of=("self",)).values_list("pk", flat=True))
        copies = Message.objects.filter(session_id__in=ids, created_at__lt=F("session__created_at"))
        with recounting(messages=copies if ids else None):
            yield


def _key_of(session: Session, message: Message) -> Key | None:
    """None for a copy: copies are older than the fork that they are in."""
    if session.forked_from_id is not None and message.created_at < session.created_at:
        return None
    day = message.created_at.astimezone(UTC).date()
    return Key(day, session.owner_id, session.api_key_id, session.source, message.agent, message.model)


def check() -> int:
    """Compare each finished day that has changed with a recount. Returns the number of wrong days, now corrected."""
    for day in StaleDay.objects.values_list("day", flat=True).distinct():
        recount(day)
    today = timezone.now().astimezone(UTC).date()
    changed = DayTally.objects.exclude(revision=F("checked_revision")).filter(day__lt=today)
    days = {*changed.values_list("day", flat=True).distinct(), today - timedelta(days=1)}
    return sum(not _is_right(day) for day in sorted(days))


def _is_right(day: date) -> bool:
    """Reads without a lock: if the counts are unchanged after the recount, the two belong together."""
    for _ in range(_TRIES):
        stored = _stored(day)
        counted = sums_of_day(day)
        if stored != _stored(day):
            continue
        kept = {key: numbers for key, (_revision, numbers) in stored.items()}
        wrong = {key for key in kept.keys() | counted.keys() if kept.get(key) != counted.get(key)}
        if not wrong:
            with writing():
                for revision in {revision for revision, _numbers in stored.values()}:
                    DayTally.objects.filter(day=day, revision=revision).update(checked_revision=revision)
            return True
        logger.error("The counts of %s were wrong in %d rows and are recomputed.", day, len(wrong))
        recount(day)
        return False
    return True  # another process writes into this day: it stays marked for the next run


def recount(day: date) -> None:
    """Replace the counts of a day. Writers wait, so that none adds to the rows that are being replaced."""
    with writing():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("LOCK TABLE history_daytally IN SHARE ROW EXCLUSIVE MODE")
        StaleDay.objects.filter(day=day).delete()
        DayTally.objects.filter(day=day).delete()
        DayTally.objects.bulk_create(DayTally(**key._asdict(), **numbers) for key, numbers in sums_of_day(day).items())


def rebuild() -> int:
    days = {*daily_count_rules.days_with_rows(), *DayTally.objects.values_list("day", flat=True).distinct()}
    for day in sorted(days):
        recount(day)
    return len(days)


def _stored(day: date) -> dict[Key, tuple[int, Numbers]]:
    rows = DayTally.objects.filter(day=day).values(*NAMES, *COUNTS, "day", "revision")
    return {
        Key(*(row[name] for name in Key._fields)): (row["revision"], {name: row[name] for name in COUNTS})
        for row in rows
    }
