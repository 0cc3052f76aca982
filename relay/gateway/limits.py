"""What a key may use: requests and tokens in a minute, calls at once, tokens and money in a day and a month.

Every process counts in memory and looks there, so a call waits for nobody. What the processes count comes together
within a second: more than twice in it, each writes what it has and reads what all have (`sync`). With Redis the minute
and the calls at once are counted there instead, so that they hold to the call. The minute is the clock's; the day and
the month are those of PARLEY_TIME_ZONE. Tokens and cost are known when a call has ended: whoever has a little left may
make one more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from history.models import ApiKey
from relay.database import in_database
from relay.gateway import shared, uses
from relay.gateway.calls import Call
from relay.gateway.recording import Recording
from relay.gateway.refusals import Refusal
from relay.gateway.usage import Uncounted
from relay.gateway.uses import NO_USE, Total, Use

logger = logging.getLogger(__name__)

# A key that was not seen for so long need not be remembered.
ACTIVE_SECONDS = 120.0
# One that was not seen for so long need not be kept up to date: its next call reads what others have counted.
BUSY_SECONDS = 5.0
# So many calls that have ended are counted together, at the most.
MOST_WAITING = 500
P = TypeVar("P", int, date)
PER_MINUTE = ("requests_per_minute", "tokens_per_minute")
BUDGETS = ("tokens_per_day", "tokens_per_month", "cost_per_day", "cost_per_month")


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

    def enter(self, name: str) -> set[str]:
        self.minute.requests += 1
        self.day.requests += 1
        self.running.add(name)
        return self.running


_lock = threading.Lock()
_accounts: dict[int, Account] = {}
_waiting: deque[tuple[int, Uncounted]] = deque()


LIMITS = (*PER_MINUTE, "concurrent_streams", *BUDGETS)
_limits_of = attrgetter(*LIMITS)
_NONE = (None,) * len(LIMITS)


def is_limited(key: ApiKey) -> bool:
    return bool(_limits_of(key) != _NONE)


class admitted:  # noqa: N801 - reads as a clause: async with admitted(call)
    """Around a call: counts it in, or refuses it; counts it out, however it ends."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.name = call.name
        self.is_shared = False

    async def __aenter__(self) -> None:
        key = self.call.key
        with _lock:
            account = account_of(key.id, is_locked=True)
            if account.key is not key:
                account.key, account.is_limited = key, is_limited(key)
            if not account.is_limited:
                self.running = account.enter(self.name)
                return
        self.call.is_limited = True
        await self._check(key, account)
        with _lock:
            self.running = account.enter(self.name)

    async def __aexit__(self, *_: object) -> None:
        with _lock:
            self.running.discard(self.name)
        if self.is_shared:
            await shared.leave(self.call.key.prefix, self.name)

    async def _check(self, key: ApiKey, account: Account) -> None:
        if not account.is_loaded:
            await _load(key.pk)
        _check_budget(key, account)
        counted = await shared.enter(key.prefix, self.name) if shared.is_there() else None
        self.is_shared = counted is not None
        minute = counted or shared.Counted(
            requests=account.minute.used.requests,
            tokens=account.minute.used.tokens,
            running=len(account.running) + account.elsewhere,
        )
        try:
            _check_pace(key, minute)
        except Refusal:
            if self.is_shared:
                await shared.leave(key.prefix, self.name, request_too=True)
            raise


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
        uses.leave_over(key, account.day.period, account.day.new + account.day.writing)
        account.day, account.is_loaded = Count(day), False


def note(call: Call, recording: Recording) -> None:
    """What it used, once that is known. Where nobody is refused for it, many are counted together, a little later."""
    if recording.uncounted is not None:
        _waiting.append((call.key.id, recording.uncounted))
        if len(_waiting) >= MOST_WAITING:
            count_waiting()
        return
    usage = recording.usage
    if usage is None:
        return
    tokens = usage.input_tokens + usage.output_tokens
    _add(call.key.id, tokens, recording.cost)
    if call.key.tokens_per_minute is not None and shared.is_there():
        shared.note_tokens(call.key.prefix, tokens)


def count_waiting() -> None:
    while _waiting:
        try:
            key, uncounted = _waiting.popleft()
        except IndexError:  # somebody else was quicker
            return
        usage = uncounted.usage()
        _add(key, usage.input_tokens + usage.output_tokens, uncounted.cost(usage))


def _add(key: int, tokens: int, cost: Decimal) -> None:
    with _lock:
        account = account_of(key, is_locked=True)
        for count in (account.minute, account.day):
            count.tokens += tokens
            if cost:
                count.cost += cost


def sync() -> None:
    """The background's job: write what this process counted, read what all of them did."""
    count_waiting()
    with _lock:
        active = {key: account for key, account in _accounts.items() if _is_active(account)}
        for key in _accounts.keys() - active.keys():
            del _accounts[key]
        for account in active.values():
            account.minute.begin_writing()
            account.day.begin_writing()
        days = {key: account.day for key, account in active.items()}
        minutes = {key: account.minute for key, account in active.items() if account.is_limited and _is_busy(account)}
        for key in active.keys() - minutes.keys():
            active[key].is_loaded = False
        running = {key: len(active[key].running) for key in minutes}
    uses.add_days({key: (count.period, count.writing) for key, count in days.items()})
    _written(days)
    if minutes:
        uses.add_minutes({key: (count.period, count.writing) for key, count in minutes.items()}, running=running)
        _written(minutes)
        for key in minutes:
            _take(key, uses.total_of(key, minute=this_minute(), day=today()))
        shared.keep_alive({active[key].prefix: active[key].running for key in minutes})


def _written(counts: Mapping[int, Count[Any]]) -> None:
    with _lock:
        for count in counts.values():
            count.known, count.writing = count.known + count.writing, NO_USE


def _take(key: int, total: Total) -> None:
    with _lock:
        account = account_of(key, is_locked=True, is_seen=False)
        account.minute.known, account.day.known = total.minute, total.day
        account.month_before, account.elsewhere, account.is_loaded = total.month_before, total.elsewhere, True


def running_here() -> int:
    """How many calls this process is carrying."""
    with _lock:
        return sum(len(account.running) for account in _accounts.values())


def forget_all() -> None:
    _waiting.clear()
    with _lock:
        _accounts.clear()


def _is_active(account: Account) -> bool:
    unwritten = account.day.new + account.day.writing
    return bool(account.running or unwritten) or time.monotonic() - account.seen < ACTIVE_SECONDS


def _is_busy(account: Account) -> bool:
    unwritten = account.minute.new + account.minute.writing
    return bool(account.running or unwritten) or time.monotonic() - account.seen < BUSY_SECONDS


async def _load(key: int) -> None:
    """The first time in this process: what others have counted. Without the database the call goes on."""
    try:
        total = await in_database(uses.total_of, key, minute=this_minute(), day=today())
    except (DatabaseError, InterfaceError):
        logger.warning("What the key %d has used cannot be read; it passes.", key)
        return
    _take(key, total)


# Over a limit?


def _check_pace(key: ApiKey, counted: shared.Counted) -> None:
    wait = 60 - int(time.time()) % 60
    if key.requests_per_minute is not None and counted.requests >= key.requests_per_minute:
        raise _over(f"{key.requests_per_minute} requests per minute", wait)
    if key.tokens_per_minute is not None and counted.tokens >= key.tokens_per_minute:
        raise _over(f"{key.tokens_per_minute} tokens per minute", wait)
    if key.concurrent_streams is not None and counted.running >= key.concurrent_streams:
        raise _over(f"{key.concurrent_streams} calls at once", 1)


def _check_budget(key: ApiKey, account: Account) -> None:
    of_day = account.day.used
    of_month = account.month_before + of_day
    for limit, used, unit, until in (
        (key.tokens_per_day, of_day.tokens, "tokens per day", _tomorrow),
        (key.cost_per_day, of_day.cost, "cost per day", _tomorrow),
        (key.tokens_per_month, of_month.tokens, "tokens per month", _next_month),
        (key.cost_per_month, of_month.cost, "cost per month", _next_month),
    ):
        if limit is not None and used >= limit:
            wait = max(1, int((until() - datetime.now(_zone())).total_seconds()))
            raise _over(f"{Decimal(limit).normalize():f} {unit}", wait, ("x-should-retry", "false"))


def _over(limit: str, wait: int, *more: tuple[str, str]) -> Refusal:
    words = f"This key is over its limit of {limit}. It goes on in {wait} seconds."
    return Refusal(words, "rate_limit", headers=(("retry-after", str(wait)), *more))


def this_minute() -> int:
    return int(time.time()) // 60


def today() -> date:
    return _day_of(this_minute(), settings.TIME_ZONE)


@lru_cache(maxsize=4)
def _day_of(minute: int, zone: str) -> date:
    return datetime.fromtimestamp(minute * 60, ZoneInfo(zone)).date()


def _tomorrow() -> datetime:
    return datetime.combine(today() + timedelta(days=1), clock.min, tzinfo=_zone())


def _next_month() -> datetime:
    first = (today().replace(day=1) + timedelta(days=32)).replace(day=1)
    return datetime.combine(first, clock.min, tzinfo=_zone())


def _zone() -> ZoneInfo:
    return ZoneInfo(settings.TIME_ZONE)
