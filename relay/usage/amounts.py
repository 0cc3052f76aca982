"""Amounts of use (requests, tokens, cost) and the minutes and days in which they are counted.

Minutes are the clock's, counted since 1970. Days are those of PARLEY_TIME_ZONE, so that no user starts a new day by
moving to another zone.
"""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings


class Use(NamedTuple):
    """A tuple, because it is added up several times in every call."""

    requests: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def __add__(self, other: Use) -> Use:  # type: ignore[override]
        return Use(self.requests + other.requests, self.tokens + other.tokens, self.cost + other.cost)

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens or self.cost)


NO_USE = Use()


def this_minute() -> int:
    return int(time.time()) // 60


def today() -> date:
    return day_of(this_minute())


def day_of(minute: int) -> date:
    return _day_of(minute, settings.TIME_ZONE)


@lru_cache(maxsize=4)
def _day_of(minute: int, zone: str) -> date:
    return datetime.fromtimestamp(minute * 60, ZoneInfo(zone)).date()


def start_of_tomorrow() -> datetime:
    return _start_of(today() + timedelta(days=1))


def start_of_next_month() -> datetime:
    return _start_of((today().replace(day=1) + timedelta(days=32)).replace(day=1))


def _start_of(day: date) -> datetime:
    return datetime.combine(day, clock.min, tzinfo=ZoneInfo(settings.TIME_ZONE))
