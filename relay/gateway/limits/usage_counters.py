"""Use of keys and of their owners, counted in the memory of this process, so that no call waits for the database.

Each process writes what it counted and reads what all have counted every 0.4 seconds (`sync`). The tokens of a key
without limits are counted by the digester instead, which reads the reply anyway and writes them together with the
exchange: `note` is for keys with limits, and for what is not recorded. Chats write what they used themselves, with the
answer, and say so here (`chat_is_written`). How budgets are counted and reserved is in `relay.gateway.limits.budgets`.
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
from typing import Generic, TypeVar

from django.db import DatabaseError, InterfaceError

from history.models import ApiKey
from relay.gateway.limits import redis_limits, usage_store
from relay.gateway.limits.usage_store import Total, this_minute, today
from relay.runtime import process_locks
from relay.runtime.async_db import in_database
from relay.usage.allowances import Limits, limits_of
from relay.usage.amounts import NO_USE, Use

logger = logging.getLogger(__name__)

# A key that was not seen for so long need not be remembered.
ACTIVE_SECONDS = 120.0
# One that was not seen for so long need not be kept up to date: its next call reads what others have counted.
BUSY_SECONDS = 5.0
NEVER = float("-inf")
# How long a call waits to learn what the owner of its key may use.
OWNER_SECONDS = 1.0
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
    """One key in this process. `open` is what its running calls have reserved, by their names; `settling` is what calls
    have used that Redis is just being told of."""

    minute: Count[int]
    day: Count[date]
    month_before: Use = NO_USE
    running: set[str] = field(default_factory=set)
    open: dict[str, Use] = field(default_factory=dict)
    settling: Use = NO_USE
    elsewhere: int = 0
    key: ApiKey | None = None  # as it was last seen
    seen: float = 0.0
    has_limits: bool = False  # of its own
    is_limited: bool = False  # by its own limits or by those of its owner
    is_loaded: bool = False

    @property
    def prefix(self) -> str:
        return self.key.prefix if self.key else ""

    @property
    def owner(self) -> int:
        return self.key.owner_id if self.key else 0


@dataclass(slots=True)
class Owner:
    """The person who owns keys: what all processes have written of the day, and what may be used on it."""

    day: date
    known: Use = NO_USE
    limits: Limits = field(default_factory=Limits)
    open: dict[str, Use] = field(default_factory=dict)
    settling: Use = NO_USE
    read_at: float = NEVER
    seen: float = 0.0
    # Chats that are storing their use just now, and a number that changes with each beginning and end of that.
    chats_writing: int = 0
    chats_written: int = 0

    @property
    def is_limited(self) -> bool:
        return bool(self.limits.tokens_per_day or self.limits.cost_per_day)

    @property
    def must_be_read(self) -> bool:
        """Before the first call, and after a rest where there is a budget. Else `sync` reads it, and no call waits."""
        rested = _rests(self.read_at, BUSY_SECONDS)
        return rested and (self.is_limited or self.read_at == NEVER)


lock = threading.Lock()
_accounts: dict[int, Account] = {}
_owners: dict[int, Owner] = {}
# How many processes may carry calls, this one included.
_processes = 1
# Of days that have ended: key, owner and count. As they are: what is just being written is not to be written again.
_over: list[tuple[int, int, Count[date]]] = []
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
    """Count a call in, unless the key or its owner has limits that must be checked first."""
    with lock:
        account = account_of(key.id, is_locked=True)
        if account.key is not key:
            account.key, account.has_limits = key, is_limited(key)
        account.is_limited = account.has_limits or owner_of(key.owner_id, is_locked=True).is_limited
        if is_checked or not account.is_limited:
            account.minute.requests += 1
            account.day.requests += 1
            account.running.add(name)
        return account


def leave(account: Account, name: str) -> None:
    with lock:
        account.running.discard(name)


def account_of(key: int, *, is_locked: bool = False, is_seen: bool = True) -> Account:
    """The key's account in the present minute and day."""
    if not is_locked:
        with lock:
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


def owner_of(owner: int, *, is_locked: bool = False) -> Owner:
    """The owner on the present day."""
    if not is_locked:
        with lock:
            return owner_of(owner, is_locked=True)
    found, day = _owners.get(owner), today()
    if found is None:
        found = _owners[owner] = Owner(day=day)
    if found.day != day:
        found.day, found.known, found.read_at = day, NO_USE, NEVER
    found.seen = time.monotonic()
    return found


def _turn(key: int, account: Account, minute: int) -> None:
    """A new minute has begun, and with some of them a day."""
    account.minute, day = Count(minute), today()
    if account.day.period != day:
        _over.append((key, account.owner, account.day))
        account.day, account.is_loaded = Count(day), False


def note(key: ApiKey, tokens: int, cost: Decimal) -> None:
    """What a call used, once that is known."""
    with lock:
        account = account_of(key.id, is_locked=True)
        for count in (account.minute, account.day):
            count.tokens += tokens
            if cost:
                count.cost += cost
    if key.tokens_per_minute is not None and redis_limits.is_there():
        redis_limits.note_tokens(key.prefix, tokens)


# Chats.


def take_limits(owner: int, limits: Limits) -> None:
    """What a chat has just read of its person's limits. A person without limits needs no entry here."""
    with lock:
        if owner in _owners or limits.tokens_per_day or limits.cost_per_day:
            owner_of(owner, is_locked=True).limits = limits


def begin_writing_chat(owner: int) -> None:
    """A chat is about to store what it used: what is read of the owner meanwhile may have it or not."""
    with lock:
        found = owner_of(owner, is_locked=True)
        found.chats_writing += 1
        found.chats_written += 1


def chat_is_written(owner: int, spent: Use) -> None:
    """The use of a chat is in the database, or was not stored (`NO_USE`)."""
    with lock:
        found = owner_of(owner, is_locked=True)
        found.chats_writing -= 1
        found.chats_written += 1
        found.known += spent


def sync() -> None:
    """The background's job: write what this process counted, read what all of them did."""
    global _turns
    _turns += 1
    try:
        _write_and_read()
    finally:
        _turns += 1


def _write_and_read() -> None:
    process_locks.name_here()  # other processes count this one before it has its first call
    with lock:
        active = {key: account for key, account in _accounts.items() if _is_active(account)}
        for key in _accounts.keys() - active.keys():
            del _accounts[key]
        for owner in [
            pk for pk, one in _owners.items() if not (one.open or one.settling) and _rests(one.seen, ACTIVE_SECONDS)
        ]:
            del _owners[owner]
        over = list(_over)
        days = [*over, *((key, account.owner, account.day) for key, account in active.items())]
        for _, _, day in days:
            day.begin_writing()
        for account in active.values():
            account.minute.begin_writing()
        minutes = {key: account.minute for key, account in active.items() if account.is_limited and _is_busy(account)}
        for key in active.keys() - minutes.keys():
            active[key].is_loaded = False
        running = {key: len(active[key].running) for key in minutes}
        owners = {pk: one for pk, one in _owners.items() if one.open or not _rests(one.seen, BUSY_SECONDS)}
    # First: without the database, Redis must not forget them.
    of_owners = {redis_limits.scope_of_owner(pk): one.open.keys() for pk, one in owners.items() if one.open}
    redis_limits.keep_alive({**{active[key].prefix: active[key].running for key in minutes}, **of_owners})
    usage_store.add_days((key, owner, count.period, count.writing) for key, owner, count in days)
    _written(days)
    del _over[: len(over)]
    if minutes:
        usage_store.add_minutes({key: (count.period, count.writing) for key, count in minutes.items()}, running=running)
        _written_minutes(minutes.values())
        for key in minutes:
            _take(key, usage_store.total_of(key, minute=this_minute(), day=today()))
    if minutes or owners:
        _count_processes()
    for pk, one in owners.items():
        written = one.chats_written
        _take_owner(pk, *_read_owner(pk), written=written)


def _written(days: Iterable[tuple[int, int, Count[date]]]) -> None:
    """What was just written is known, of the keys and of their owners."""
    with lock:
        for _, owner, count in days:
            found = _owners.get(owner)
            if found is not None and found.day == count.period:
                found.known += count.writing
            count.known, count.writing = count.known + count.writing, NO_USE


def _written_minutes(counts: Iterable[Count[int]]) -> None:
    with lock:
        for count in counts:
            count.known, count.writing = count.known + count.writing, NO_USE


def _take(key: int, total: Total, *, read_in: int | None = None) -> bool:
    """`read_in`: which turn it was when that was read, by whoever does not write."""
    with lock:
        if read_in is not None and (read_in != _turns or read_in % 2):
            return False
        account = account_of(key, is_locked=True, is_seen=False)
        account.minute.known, account.day.known = total.minute, total.day
        account.month_before, account.elsewhere, account.is_loaded = total.month_before, total.elsewhere, True
        return True


def _read_owner(owner: int) -> tuple[Use, Limits]:
    return usage_store.spent_by(owner, day=today()), limits_of(owner)


def _take_owner(pk: int, spent: Use, limits: Limits, *, written: int, read_in: int | None = None) -> bool:
    """`written`: the owner's `chats_written` before that was read."""
    with lock:
        if read_in is not None and (read_in != _turns or read_in % 2):
            return False
        found = _owners.get(pk)
        if found is not None:
            if found.chats_writing or found.chats_written != written:
                return False
            found.known, found.limits, found.read_at = spent, limits, time.monotonic()
        return True


def _count_processes() -> None:
    """Those of this machine, by their files, and those that have carried calls of limited keys a moment ago."""
    global _processes
    _processes = max(process_locks.count_living(), 1 + usage_store.other_processes())


def processes() -> int:
    return _processes


def unwritten_of(owner: int) -> Use:
    """What the keys of one owner have used and is not yet written. Call it with the lock held."""
    return sum((one.day.writing + one.day.new for one in _accounts.values() if one.owner == owner), NO_USE)


def running_here() -> int:
    """How many calls this process is carrying."""
    with lock:
        return sum(len(account.running) for account in _accounts.values())


def forget_all() -> None:
    global _processes
    with lock:
        _accounts.clear()
        _owners.clear()
        _over.clear()
        _processes = 1


def _is_active(account: Account) -> bool:
    unwritten = account.day.new + account.day.writing
    return bool(account.running or unwritten or account.settling) or not _rests(account.seen, ACTIVE_SECONDS)


def _is_busy(account: Account) -> bool:
    unwritten = account.minute.new + account.minute.writing
    return bool(account.running or unwritten) or not _rests(account.seen, BUSY_SECONDS)


def _rests(seen: float, seconds: float) -> bool:
    return time.monotonic() - seen >= seconds


async def load(key: int) -> None:
    """The first time in this process: what others have counted. Without the database the call goes on."""
    for _ in range(READ_AGAIN):
        turn = _turns
        try:
            total = await in_database(usage_store.total_of, key, minute=this_minute(), day=today())
        except (DatabaseError, InterfaceError):
            logger.warning("What the key %d has used cannot be read; it passes.", key)
            return
        if _take(key, total, read_in=turn):
            return
        await asyncio.sleep(READ_AFTER)


async def load_owner(owner: int) -> None:
    """What the owner may use and has used. While the database cannot say, calls pass, and wait once in 5 seconds."""
    try:
        async with asyncio.timeout(OWNER_SECONDS):
            await in_database(_count_processes)
            for _ in range(READ_AGAIN):
                turn, written = _turns, owner_of(owner).chats_written
                if _take_owner(owner, *await in_database(_read_owner, owner), written=written, read_in=turn):
                    return
                await asyncio.sleep(READ_AFTER)
    except (DatabaseError, InterfaceError, TimeoutError):
        logger.warning("What the owner %d of a key may use cannot be read; the call passes.", owner)
        owner_of(owner).read_at = time.monotonic()
