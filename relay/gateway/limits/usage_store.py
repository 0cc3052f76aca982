"""Use of keys and of their owners in the database, added to and read back by every process.

By minutes, which are the clock's and counted since 1970, and by days, which are those of PARLEY_TIME_ZONE.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection
from django.db.models import F, Sum
from django.utils import timezone

from history.db.transactions import writing
from relay.models import IssuedId, KeyMinute, KeyStreams, KeyUse, Spending
from relay.usage.amounts import Use

MOST_TOKENS = 10**12
# Several times a second wherever a key is in use, hence by hand. What others have added is added to.
ADD_DAY = """
    INSERT INTO relay_keyuse (key_id, day, requests, tokens, cost) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (key_id, day) DO UPDATE SET requests = relay_keyuse.requests + excluded.requests,
        tokens = relay_keyuse.tokens + excluded.tokens, cost = relay_keyuse.cost + excluded.cost
"""
# The same for the owner of the key: chats and keys count together, and the use of a deleted key stays. An owner who was
# removed meanwhile gets no row.
ADD_SPENDING = """
    INSERT INTO relay_spending (user_id, day, messages, tokens, cost)
    SELECT id, %s, 0, %s, %s FROM accounts_user WHERE id = %s
    ON CONFLICT (user_id, day) DO UPDATE SET
        tokens = relay_spending.tokens + excluded.tokens, cost = relay_spending.cost + excluded.cost
"""
ADD_MINUTE = """
    INSERT INTO relay_keyminute (key_id, minute, requests, tokens) VALUES (%s, %s, 0, %s)
    ON CONFLICT (key_id, minute) DO UPDATE SET tokens = relay_keyminute.tokens + excluded.tokens
"""
# A process that has not written for so long carries nothing any more.
ALIVE = timedelta(seconds=5)
# The vendors keep answers for a month.
ISSUED_FOR = timedelta(days=40)


@dataclass(frozen=True, slots=True)
class Total:
    """`month_before` is this month's without today; `elsewhere` are the calls that other processes carry."""

    minute: Use = field(default_factory=Use)
    day: Use = field(default_factory=Use)
    month_before: Use = field(default_factory=Use)
    elsewhere: int = 0


def this_minute() -> int:
    return int(time.time()) // 60


def day_of(minute: int) -> date:
    """In PARLEY_TIME_ZONE."""
    return _day_of(minute, settings.TIME_ZONE)


@lru_cache(maxsize=4)
def _day_of(minute: int, zone: str) -> date:
    return datetime.fromtimestamp(minute * 60, ZoneInfo(zone)).date()


def today() -> date:
    return day_of(this_minute())


_token = secrets.token_hex(4)


def add_days(days: Iterable[tuple[int, int, date, Use]]) -> None:
    """Add to the rows of these keys and of their owners: key, owner, day and use of each."""
    of_keys: dict[tuple[int, date], Use] = defaultdict(Use)
    of_owners: dict[tuple[int, date], Use] = defaultdict(Use)
    for key, owner, day, use in days:
        if use:
            of_keys[key, day] += use
            of_owners[owner, day] += use
    if of_keys:
        with writing(), connection.cursor() as cursor:
            _add(cursor, of_keys, of_owners)


def _add(cursor: Any, of_keys: Mapping[tuple[int, date], Use], of_owners: Mapping[tuple[int, date], Use]) -> None:
    """In one order, against deadlocks."""
    cursor.executemany(ADD_DAY, [_row(key, day, use) for (key, day), use in sorted(of_keys.items())])
    spent = [(owner, day, use) for (owner, day), use in sorted(of_owners.items()) if use.tokens or use.cost]
    if spent:
        cursor.executemany(ADD_SPENDING, [_spending_row(*one) for one in spent])


def _spending_row(owner: int, day: date, use: Use) -> tuple[Any, ...]:
    _, written_day, _, tokens, cost = _row(owner, day, use)
    return written_day, tokens, cost, owner


def _row(key: int, day: date, use: Use) -> tuple[Any, ...]:
    cost = connection.ops.adapt_decimalfield_value(use.cost.quantize(Decimal("0.000001")), 14, 6)
    return key, connection.ops.adapt_datefield_value(day), use.requests, _bounded(use.tokens), cost


def _bounded(tokens: int) -> int:
    return max(0, min(tokens, MOST_TOKENS))


def add_tokens(amounts: Iterable[tuple[int, int, float, Use]]) -> None:
    """What the digester has counted: key, owner, moment and use of each call, within its transaction."""
    days: dict[tuple[int, date], Use] = defaultdict(Use)
    owners: dict[tuple[int, date], Use] = defaultdict(Use)
    minutes: dict[tuple[int, int], int] = defaultdict(int)
    for key, owner, moment, use in amounts:
        minute = int(moment) // 60
        days[key, day_of(minute)] += use
        owners[owner, day_of(minute)] += use
        minutes[key, minute] += use.tokens
    if days:
        with connection.cursor() as cursor:
            _add(cursor, days, owners)
            cursor.executemany(ADD_MINUTE, [(*place, _bounded(tokens)) for place, tokens in sorted(minutes.items())])


def add_minutes(minutes: Mapping[int, tuple[int, Use]], *, running: Mapping[int, int]) -> None:
    """Of keys with limits: this minute, and how many calls this process carries now."""
    now = timezone.now()
    with writing():
        rows = [KeyMinute(key_id=key, minute=minute) for key, (minute, _) in minutes.items()]
        KeyMinute.objects.bulk_create(rows, ignore_conflicts=True)
        for key, (minute, use) in minutes.items():
            if use:
                KeyMinute.objects.filter(key_id=key, minute=minute).update(
                    requests=F("requests") + use.requests, tokens=F("tokens") + _bounded(use.tokens)
                )
        KeyStreams.objects.bulk_create(
            [KeyStreams(key_id=key, process=_process(), count=count, at=now) for key, count in running.items()],
            update_conflicts=True,
            unique_fields=["key", "process"],
            update_fields=["count", "at"],
        )


def total_of(key: int, *, minute: int, day: date) -> Total:
    alive = KeyStreams.objects.filter(key_id=key, at__gt=timezone.now() - ALIVE).exclude(process=_process())
    of_month = KeyUse.objects.filter(key_id=key, day__gte=day.replace(day=1), day__lte=day)
    return Total(
        minute=_use(KeyMinute.objects.filter(key_id=key, minute=minute).values("requests", "tokens").first()),
        day=_use(of_month.filter(day=day).values("requests", "tokens", "cost").first()),
        month_before=_use(
            of_month.exclude(day=day).aggregate(requests=Sum("requests"), tokens=Sum("tokens"), cost=Sum("cost"))
        ),
        elsewhere=alive.aggregate(total=Sum("count"))["total"] or 0,
    )


def spent_by(owner: int, *, day: date) -> Use:
    """By one person on one day, in chats and with all keys, those that have ended or were deleted included."""
    return _use(Spending.objects.filter(user_id=owner, day=day).values("tokens", "cost").first())


def other_processes() -> int:
    """How many other processes carry calls of keys with limits."""
    alive = KeyStreams.objects.filter(at__gt=timezone.now() - ALIVE).exclude(process=_process())
    return alive.values("process").distinct().count()


def tidy() -> None:
    """Minutes that are over, processes that are gone, names that no vendor knows any more."""
    now = timezone.now()
    KeyMinute.objects.filter(minute__lt=int(now.timestamp()) // 60 - 5).delete()
    KeyStreams.objects.filter(at__lt=now - timedelta(minutes=5)).delete()
    IssuedId.objects.filter(at__lt=now - ISSUED_FOR).delete()


def _use(row: Mapping[str, Any] | None) -> Use:
    row = row or {}
    return Use(row.get("requests") or 0, row.get("tokens") or 0, row.get("cost") or Decimal(0))


def _process() -> str:
    return f"{socket.gethostname()[:80]}:{os.getpid()}:{_token}"
