"""Usage of keys and owners in the database, added to and read by every process."""

import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import F, Sum
from django.utils import timezone

from history.db.transactions import writing
from relay.models import IssuedId, KeyMinute, KeyStreams, KeyUse, Spending
from relay.usage.prices import NO_USE, Use, day_of

# Of one call. Larger numbers are wrong, and many of them would not fit into the columns.
MOST_TOKENS, MOST_COST = 10**12, Decimal(10**6)
# Several times a second wherever a key is in use, hence raw SQL.
ADD_KEY_DAY = """
    INSERT INTO relay_keyuse (key_id, day, requests, tokens, cost) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (key_id, day) DO UPDATE SET requests = relay_keyuse.requests + excluded.requests,
        tokens = relay_keyuse.tokens + excluded.tokens, cost = relay_keyuse.cost + excluded.cost
"""
# The owner of a key: chats and keys count together, and the use of a deleted key stays. An owner who was removed
# meanwhile gets no row.
ADD_OWNER_DAY = """
    INSERT INTO relay_spending (user_id, day, messages, tokens, cost)
    SELECT id, %s, %s, %s, %s FROM accounts_user WHERE id = %s
    ON CONFLICT (user_id, day) DO UPDATE SET messages = relay_spending.messages + excluded.messages,
        tokens = relay_spending.tokens + excluded.tokens, cost = relay_spending.cost + excluded.cost
"""
ADD_MINUTE = """
    INSERT INTO relay_keyminute (key_id, minute, requests, tokens) VALUES (%s, %s, 0, %s)
    ON CONFLICT (key_id, minute) DO UPDATE SET tokens = relay_keyminute.tokens + excluded.tokens
"""
ALIVE = timedelta(seconds=5)  # a process that has not written for this time has no calls any more
ISSUED_FOR = timedelta(days=40)  # the vendors keep answers for a month

DayUse = tuple[int, int, date, Use]  # key, owner, day and use


@dataclass(frozen=True, slots=True)
class Total:
    """`month_before` is this month without today; `elsewhere` is the number of calls in other processes."""

    minute: Use = NO_USE
    day: Use = NO_USE
    month_before: Use = NO_USE
    elsewhere: int = 0


def add_days(days: Iterable[DayUse]) -> None:
    if used := [day for day in days if day[3]]:
        with writing(), connection.cursor() as cursor:
            _add_days(cursor, used)


def add_digested(amounts: Iterable[tuple[int, int, float, Use]]) -> None:
    """Add what the digester has counted, within its transaction: key, owner, time and use of each call."""
    minutes: dict[tuple[int, int], int] = defaultdict(int)
    days: list[DayUse] = []
    for key, owner, moment, use in amounts:
        minute = int(moment) // 60
        days.append((key, owner, day_of(minute), use))
        minutes[key, minute] += use.tokens
    if days:
        with connection.cursor() as cursor:
            _add_days(cursor, days)
            cursor.executemany(ADD_MINUTE, [(*place, _bounded(tokens)) for place, tokens in sorted(minutes.items())])


def add_owner_day(owner: int, day: date, use: Use, *, messages: int = 0) -> None:
    with writing(savepoint=False), connection.cursor() as cursor:
        cursor.execute(ADD_OWNER_DAY, _owner_row(owner, day, use, messages=messages))


def _add_days(cursor: CursorWrapper, days: Iterable[DayUse]) -> None:
    """Sorted, against deadlocks."""
    keys: dict[tuple[int, date], Use] = defaultdict(Use)
    owners: dict[tuple[int, date], Use] = defaultdict(Use)
    for key, owner, day, use in days:
        keys[key, day] += use
        owners[owner, day] += use
    used = [(key, _day(day), use.requests, *_amounts(use)) for (key, day), use in sorted(keys.items())]
    cursor.executemany(ADD_KEY_DAY, used)
    spent = [_owner_row(owner, day, use) for (owner, day), use in sorted(owners.items()) if use.tokens or use.cost]
    if spent:
        cursor.executemany(ADD_OWNER_DAY, spent)


def _owner_row(owner: int, day: date, use: Use, *, messages: int = 0) -> tuple[str | int | None, ...]:
    return _day(day), messages, *_amounts(use), owner


def _day(day: date) -> str | None:
    return connection.ops.adapt_datefield_value(day)


def _amounts(use: Use) -> tuple[int, str | None]:
    cost = max(Decimal(0), min(use.cost, MOST_COST)).quantize(Decimal("0.000001"))
    return _bounded(use.tokens), connection.ops.adapt_decimalfield_value(cost, 14, 6)


def _bounded(tokens: int) -> int:
    return max(0, min(tokens, MOST_TOKENS))


def add_minutes(minutes: Sequence[tuple[int, int, Use, int]]) -> None:
    """Add to the minutes of keys with limits: key, minute, use and the number of calls that this process has."""
    now = timezone.now()
    with writing():
        rows = [KeyMinute(key_id=key, minute=minute) for key, minute, _, _ in minutes]
        KeyMinute.objects.bulk_create(rows, ignore_conflicts=True)
        for key, minute, use, _ in minutes:
            if use:
                KeyMinute.objects.filter(key_id=key, minute=minute).update(
                    requests=F("requests") + use.requests, tokens=F("tokens") + _bounded(use.tokens)
                )
        KeyStreams.objects.bulk_create(
            [KeyStreams(key_id=key, process=_process(), count=count, at=now) for key, _, _, count in minutes],
            update_conflicts=True,
            unique_fields=["key", "process"],
            update_fields=["count", "at"],
        )


def total_of(key: int, *, minute: int, day: date) -> Total:
    alive = KeyStreams.objects.filter(key_id=key, at__gt=timezone.now() - ALIVE).exclude(process=_process())
    of_month = KeyUse.objects.filter(key_id=key, day__gte=day.replace(day=1), day__lte=day)
    sums = {name: Sum(name) for name in ("requests", "tokens", "cost")}
    return Total(
        minute=_use(KeyMinute.objects.filter(key_id=key, minute=minute).values("requests", "tokens").first()),
        day=_use(of_month.filter(day=day).values("requests", "tokens", "cost").first()),
        month_before=_use(of_month.exclude(day=day).aggregate(**sums)),
        elsewhere=alive.aggregate(total=Sum("count"))["total"] or 0,
    )


def spent_by(owner: int, *, day: date) -> Use:
    """What one owner used on one day, in chats and with all keys, expired and deleted ones included."""
    return _use(Spending.objects.filter(user_id=owner, day=day).values("tokens", "cost").first())


def _use(row: Mapping[str, Any] | None) -> Use:
    row = row or {}
    return Use(row.get("requests") or 0, row.get("tokens") or 0, row.get("cost") or Decimal(0))


def count_other_processes() -> int:
    """How many other processes have calls of keys with limits."""
    alive = KeyStreams.objects.filter(at__gt=timezone.now() - ALIVE).exclude(process=_process())
    return alive.values("process").distinct().count()


_token = secrets.token_hex(4)


def _process() -> str:
    return f"{socket.gethostname()[:80]}:{os.getpid()}:{_token}"


def delete_expired() -> None:
    now = timezone.now()
    KeyMinute.objects.filter(minute__lt=int(now.timestamp()) // 60 - 5).delete()
    KeyStreams.objects.filter(at__lt=now - timedelta(minutes=5)).delete()
    IssuedId.objects.filter(at__lt=now - ISSUED_FOR).delete()
