"""What keys use, as this process counts it: it looks and counts in memory, so a call waits for nobody.

What the processes count comes together within a second: more than twice in it, each writes what it has and reads what
all have (`sync`). The tokens of a key that has no limit are counted by the digester instead, who reads the reply anyway
and writes them together with the exchange: `note` is for those that have one, and for what is not recorded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from operator import attrgetter
from typing import Any, Generic, TypeVar

from django.db import DatabaseError, InterfaceError

from history.models import ApiKey
from relay.database import in_database
from relay.gateway import shared, uses
from relay.gateway.uses import NO_USE, Total, Use, this_minute, today

logger = logging.getLogger(__name__)

# A key that was not seen for so long need not be remembered.
ACTIVE_SECONDS = 120.0
# One that was not seen for so long need not be kept up to date: its next call reads what others have counted.
BUSY_SECONDS = 5.0
P = TypeVar("P", int, date)


@dataclass(slots=True)
class Count(Generic[P]):
    """What all processes have counted, what is just being written, and what is new since, in numbers of its own."""

    period: P
    known: Use = NO_USE
    writing: Use = NO_USE
    requests: int = 0
    tokens: int = 0
    cost: Decimal = NO_USE.cost

    @property
    def new(self) -> Use:
        return Use(self.requests, self.tokens, self.cost)

    @property
    def used(self) -> Use:
        return self.known + self.writing + self.new

    def begin_writing(self) -> None:
        self.writing += self.new
        self.requests, self.tokens, self.cost = NO_USE


@dataclass(slots=True)
class Account:
    """One key in this process."""

    minute: Count[int]
    day: Count[date]
    month_before: Use = NO_USE
    running: set[str] = field(default_factory=set)
    elsewhere: int = 0
    key: ApiKey | None = None  # as it was last seen
    seen: float = 0.0
    is_limited: bool = False
    is_loaded: bool = False

    @property
    def prefix(self) -> str:
        return self.key.prefix if self.key else ""


_lock = threading.Lock()
_accounts: dict[int, Account] = {}
# Of days that have ended. As they are: what is just being written of one is not to be written again.
_over: list[tuple[int, Count[date]]] = []
# Goes up when `sync` begins to write and when it has read back: what was read while it is odd, or while it went up, may
# lack what is being written or have it twice.
_turns = 0
# How often it is read again, and after how long; a call does not wait longer for a database that is slow to write.
READ_AGAIN, READ_AFTER = 5, 0.01


LIMITS = (
    *("requests_per_minute", "tokens_per_minute", "concurrent_streams"),
    *("tokens_per_day", "tokens_per_month", "cost_per_day", "cost_per_month"),
)
_limits_of = attrgetter(*LIMITS)
_NONE = (None,) * len(LIMITS)


def is_limited(key: ApiKey) -> bool:
    return bool(_limits_of(key) != _NONE)


def enter(key: ApiKey, name: str, *, is_checked: bool = False) -> Account:
    """Count a call in, unless the key has limits that must be checked first."""
    with _lock:
        account = account_of(key.id, is_locked=True)
        if account.key is not key:
            account.key, account.is_limited = key, is_limited(key)
        if is_checked or not account.is_limited:
            account.minute.requests += 1
            account.day.requests += 1
            account.running.add(name)
        return account


def leave(account: Account, name: str) -> None:
    with _lock:
        account.running.discard(name)


def account_of(key: int, *, is_locked: bool = False, is_seen: bool = True) -> Account:
    """The key's account in the present minute and day."""
    if not is_locked:
        with _lock:
            return account_of(key, is_locked=True, is_seen=is_seen)
    minute = this_minute()
    account = _accounts.get(key)
    if account is None:
        account = _accounts[key] = Account(minute=Count(minute), day=Count(today()))
    if account.minute.period != minute:
        _turn(key, account, minute)
    if is_seen:
        account.seen = time.monotonic()
    return account


def _turn(key: int, account: Account, minute: int) -> None:
    """A new minute has begun, and with some of them a day."""
    account.minute, day = Count(minute), today()
    if account.day.period != day:
        _over.append((key, account.day))
        account.day, account.is_loaded = Count(day), False


def note(key: ApiKey, tokens: int, cost: Decimal) -> None:
    """What a call used, once that is known."""
    with _lock:
        account = account_of(key.id, is_locked=True)
        for count in (account.minute, account.day):
            count.tokens += tokens
            if cost:
                count.cost += cost
    if key.tokens_per_minute is not None and shared.is_there():
        shared.note_tokens(key.prefix, tokens)


def sync() -> None:
    """The background's job: write what this process counted, read what all of them did."""
    global _turns
    _turns += 1
    try:
        _write_and_read()
    finally:
        _turns += 1


def _write_and_read() -> None:
    with _lock:
        active = {key: account for key, account in _accounts.items() if _is_active(account)}
        for key in _accounts.keys() - active.keys():
            del _accounts[key]
        over = list(_over)
        days = [*over, *((key, account.day) for key, account in active.items())]
        for _, day in days:
            day.begin_writing()
        for account in active.values():
            account.minute.begin_writing()
        minutes = {key: account.minute for key, account in active.items() if account.is_limited and _is_busy(account)}
        for key in active.keys() - minutes.keys():
            active[key].is_loaded = False
        running = {key: len(active[key].running) for key in minutes}
    # First: without the database, Redis must not forget them.
    shared.keep_alive({active[key].prefix: active[key].running for key in minutes})
    uses.add_days((key, count.period, count.writing) for key, count in days)
    _written(count for _, count in days)
    del _over[: len(over)]
    if minutes:
        uses.add_minutes({key: (count.period, count.writing) for key, count in minutes.items()}, running=running)
        _written(minutes.values())
        for key in minutes:
            _take(key, uses.total_of(key, minute=this_minute(), day=today()))


def _written(counts: Iterable[Count[Any]]) -> None:
    with _lock:
        for count in counts:
            count.known, count.writing = count.known + count.writing, NO_USE


def _take(key: int, total: Total, *, read_in: int | None = None) -> bool:
    """`read_in`: which turn it was when that was read, by whoever does not write."""
    with _lock:
        if read_in is not None and (read_in != _turns or read_in % 2):
            return False
        account = account_of(key, is_locked=True, is_seen=False)
        account.minute.known, account.day.known = total.minute, total.day
        account.month_before, account.elsewhere, account.is_loaded = total.month_before, total.elsewhere, True
        return True


def running_here() -> int:
    """How many calls this process is carrying."""
    with _lock:
        return sum(len(account.running) for account in _accounts.values())


def forget_all() -> None:
    with _lock:
        _accounts.clear()
        _over.clear()


def _is_active(account: Account) -> bool:
    unwritten = account.day.new + account.day.writing
    return bool(account.running or unwritten) or time.monotonic() - account.seen < ACTIVE_SECONDS


def _is_busy(account: Account) -> bool:
    unwritten = account.minute.new + account.minute.writing
    return bool(account.running or unwritten) or time.monotonic() - account.seen < BUSY_SECONDS


async def load(key: int) -> None:
    """The first time in this process: what others have counted. Without the database the call goes on."""
    for _ in range(READ_AGAIN):
        turn = _turns
        try:
            total = await in_database(uses.total_of, key, minute=this_minute(), day=today())
        except (DatabaseError, InterfaceError):
            logger.warning("What the key %d has used cannot be read; it passes.", key)
            return
        if _take(key, total, read_in=turn):
            return
        await asyncio.sleep(READ_AFTER)
