"""Usage counters of keys and owners in the memory of this process, so that no call waits for the database.

Each process writes what it counted and reads what all have counted every 0.4 seconds (`sync`). The digester counts the
tokens of keys without limits, because it reads the reply anyway. Chats write what they used with the answer and report
it here (`end_writing_chat`).
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from django.db import DatabaseError, InterfaceError

from history.db.process_state import process_state
from history.models import ApiKey
from relay.runtime import process_locks
from relay.runtime.async_db import in_database
from relay.usage import allowances, redis_counters, tables
from relay.usage.accounts import NEVER, Count, KeyAccount, OwnerAccount
from relay.usage.allowances import UserLimits, limits_of
from relay.usage.prices import Use, this_minute, today

logger = logging.getLogger(__name__)

OWNER_SECONDS = 1.0  # how long a call waits to read the limits of its owner
# How often a read that met a write is repeated, and after how long; a call does not wait longer for a slow database.
READ_AGAIN, READ_AFTER = 5, 0.01
ONE_REQUEST = Use(requests=1)
LIMITS = tuple(name for name, _label, _period in allowances.LIMITS)


@dataclass(eq=False)
class UsageCounters:
    lock: threading.RLock = field(default_factory=threading.RLock)
    keys: dict[int, KeyAccount] = field(default_factory=dict)
    owners: dict[int, OwnerAccount] = field(default_factory=dict)
    processes: int = 1  # that may have calls, this one included
    # Key, owner and count, which wait to be written.
    ended_days: list[tuple[int, int, Count[date]]] = field(default_factory=list)
    # Goes up when `sync` begins to write and when it has read back: what was read while it is odd, or while it changed,
    # may lack what is being written or have it twice.
    turns: int = 0

    def has_written_since(self, turn: int) -> bool:
        return turn != self.turns or bool(turn % 2)


def counters() -> UsageCounters:
    return process_state.get(UsageCounters)


def has_limits(key: ApiKey) -> bool:
    return any(getattr(key, name) is not None for name in LIMITS)


def key_account(pk: int, *, is_used: bool = True) -> KeyAccount:
    state, minute = counters(), this_minute()
    with state.lock:
        account = state.keys.get(pk)
        if account is None:
            account = state.keys[pk] = KeyAccount(minute=Count(minute), day=Count(today()))
        if account.minute.period != minute:
            account.minute, day = Count(minute), today()
            if account.day.period != day:
                state.ended_days.append((pk, account.owner, account.day))
                account.day, account.is_loaded = Count(day), False
        if is_used:
            account.last_used = time.monotonic()
        return account


def owner_account(pk: int) -> OwnerAccount:
    state, day = counters(), today()
    with state.lock:
        account = state.owners.get(pk)
        if account is None:
            account = state.owners[pk] = OwnerAccount(day=Count(day))
        if account.day.period != day:
            account.day, account.read_at = Count(day), NEVER
        account.last_used = time.monotonic()
        return account


def enter(key: ApiKey, name: str, *, is_checked: bool = False) -> KeyAccount:
    """Count a call in, unless the key or its owner has limits that must be checked first."""
    with counters().lock:
        account = key_account(key.id)
        if account.key is not key:
            account.key, account.has_limits = key, has_limits(key)
        account.is_limited = account.has_limits or owner_account(key.owner_id).is_limited
        if is_checked or not account.is_limited:
            account.minute.new += ONE_REQUEST
            account.day.new += ONE_REQUEST
            account.running.add(name)
        return account


def leave(account: KeyAccount, name: str) -> None:
    with counters().lock:
        account.running.discard(name)


def note(key: ApiKey, tokens: int, cost: Decimal) -> None:
    with counters().lock:
        account = key_account(key.id)
        for count in (account.minute, account.day, owner_account(key.owner_id).day):
            count.new += Use(0, tokens, cost)
    if key.tokens_per_minute is not None and redis_counters.is_enabled():
        redis_counters.note_tokens(key.prefix, tokens)


def count_running() -> int:
    with counters().lock:
        return sum(len(account.running) for account in counters().keys.values())


def set_limits(owner: int, limits: UserLimits) -> None:
    """Take over limits that a chat has just read. An owner without limits needs no account here."""
    with counters().lock:
        if owner in counters().owners or limits.has_budget:
            owner_account(owner).limits = limits


def begin_writing_chat(owner: int) -> None:
    """A chat is about to store what it used: what is read of the owner meanwhile may include it or not."""
    with counters().lock:
        account = owner_account(owner)
        account.chats_writing += 1
        account.chats_written += 1


def end_writing_chat(owner: int, spent: Use) -> None:
    """The use of a chat is in the database, or was not stored (`NO_USE`)."""
    with counters().lock:
        account = owner_account(owner)
        account.chats_writing -= 1
        account.chats_written += 1
        account.day.known += spent


def sync() -> None:
    """Write what this process counted and read what all of them did: a background job."""
    state = counters()
    state.turns += 1
    try:
        _write_and_read(state)
    finally:
        state.turns += 1


def _write_and_read(state: UsageCounters) -> None:
    process_locks.name_here()  # other processes count this one before it has its first call
    with state.lock:
        state.keys = {pk: account for pk, account in state.keys.items() if account.is_in_use()}
        state.owners = {pk: account for pk, account in state.owners.items() if account.is_in_use()}
        ended = list(state.ended_days)
        days = [*ended, *((pk, account.owner, account.day) for pk, account in state.keys.items())]
        counts = [*(day for _, _, day in days), *(account.day for account in state.owners.values())]
        for count in counts:
            count.begin_writing()
        for account in state.keys.values():
            account.minute.begin_writing()
        limited = {pk: account for pk, account in state.keys.items() if account.is_limited and account.is_busy()}
        for pk in state.keys.keys() - limited.keys():
            state.keys[pk].is_loaded = False
        minutes = [(pk, one.minute.period, one.minute.writing, len(one.running)) for pk, one in limited.items()]
        owners = {pk: account for pk, account in state.owners.items() if account.is_busy()}
    # First: without the database, Redis must not forget them.
    alive: dict[str, Collection[str]] = {one.key.prefix: one.running for one in limited.values() if one.key}
    alive |= {redis_counters.scope_of_owner(pk): one.reserved.keys() for pk, one in owners.items() if one.reserved}
    redis_counters.keep_alive(alive)
    tables.add_days([(key, owner, count.period, count.writing) for key, owner, count in days])
    with state.lock:
        for count in counts:
            count.end_writing()
        del state.ended_days[: len(ended)]
    if limited:
        tables.add_minutes(minutes)
        with state.lock:
            for account in limited.values():
                account.minute.end_writing()
        for pk in limited:
            _read_key(pk, is_writer=True)
    if limited or owners:
        _count_processes()
    for pk in owners:
        _read_owner(pk, is_writer=True)


def _read_key(pk: int, *, is_writer: bool = False) -> bool:
    """Read what all processes counted of a key. False if it changed meanwhile and must be read again."""
    turn = counters().turns
    total = tables.total_of(pk, minute=this_minute(), day=today())
    with counters().lock:
        if not is_writer and counters().has_written_since(turn):
            return False
        account = key_account(pk, is_used=False)
        account.minute.known, account.day.known = total.minute, total.day
        account.month_before, account.elsewhere, account.is_loaded = total.month_before, total.elsewhere, True
        return True


def _read_owner(pk: int, *, is_writer: bool = False) -> bool:
    """The same of an owner, with their limits."""
    turn, account = counters().turns, counters().owners.get(pk)
    written = account.chats_written if account else 0
    spent, limits = tables.spent_by(pk, day=today()), limits_of(pk)
    with counters().lock:
        if not is_writer and counters().has_written_since(turn):
            return False
        if (account := counters().owners.get(pk)) is not None:
            if account.chats_writing or account.chats_written != written:
                return False
            account.day.known, account.limits, account.read_at = spent, limits, time.monotonic()
        return True


def _count_processes() -> None:
    """Processes of this machine, by their files, and those that have had calls of limited keys a moment ago."""
    counters().processes = max(process_locks.count_living(), 1 + tables.count_other_processes())


async def load_key(pk: int) -> None:
    """Read what others have counted. Without the database the call continues."""
    try:
        await _read_repeatedly(_read_key, pk)
    except (DatabaseError, InterfaceError):
        logger.warning("The usage of key %d cannot be read; its call passes.", pk)


async def load_owner(pk: int) -> None:
    """Read the limits and the use of an owner. During an outage calls pass, and one in 5 seconds waits for this."""
    try:
        async with asyncio.timeout(OWNER_SECONDS):
            await in_database(_count_processes)
            await _read_repeatedly(_read_owner, pk)
    except (DatabaseError, InterfaceError, TimeoutError):
        logger.warning("The allowance of user %d cannot be read; the call passes.", pk)
        owner_account(pk).read_at = time.monotonic()


async def _read_repeatedly(read: Callable[[int], bool], pk: int) -> None:
    for _ in range(READ_AGAIN):
        if await in_database(read, pk):
            return
        await asyncio.sleep(READ_AFTER)
