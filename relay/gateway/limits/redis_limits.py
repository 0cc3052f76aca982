"""Rate limits and budgets in Redis, exact across processes: the minute, the calls at once, what running calls reserve.

Redis is asked only for keys that have such limits. Where it is not there or does not answer, nobody is refused for it:
each process counts for itself, and the database brings the counts together once a second. Its client is loaded with
the first question: that is six megabytes which most installations never need.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings

from relay.runtime.per_loop import PerLoop

if TYPE_CHECKING:
    import redis

logger = logging.getLogger(__name__)

PREFIX = "parley:key"
# A call whose process gives no sign of life for so long is not carried any more.
ALIVE_SECONDS = 10.0
PATIENCE_SECONDS = 0.25
# Of what is renewed by those who use it, and of a minute.
KEPT_SECONDS, MINUTE_KEPT_SECONDS = 60, 120

_tasks: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Counted:
    """Before this call, which was counted in this minute."""

    minute: int
    requests: int
    tokens: int
    running: int


def is_there() -> bool:
    return bool(settings.REDIS_URL)


async def enter(key: str, name: str) -> Counted | None:
    """Count a call in; what there was before it. None where Redis does not answer. Keys go by their prefix."""
    now = time.time()
    minute, running = _of_minute(key, int(now) // 60), _running(key)
    pipeline = _client().pipeline(transaction=True)
    pipeline.hincrby(minute, "requests", 1)
    pipeline.hget(minute, "tokens")
    pipeline.expire(minute, MINUTE_KEPT_SECONDS)
    pipeline.zremrangebyscore(running, "-inf", now)
    pipeline.zadd(running, {name: now + ALIVE_SECONDS})
    pipeline.zcard(running)
    pipeline.expire(running, KEPT_SECONDS)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            requests, tokens, _, _, _, count, _ = await pipeline.execute()
    except _faults() as error:
        logger.warning("Redis does not count the relay's calls (%s); this process does.", type(error).__name__)
        return None
    except asyncio.CancelledError:  # nobody will count out what may have been counted in
        _soon(leave(key, name))
        raise
    return Counted(minute=int(now) // 60, requests=int(requests) - 1, tokens=int(tokens or 0), running=int(count) - 1)


async def leave(key: str, name: str, *, refused: Counted | None = None) -> None:
    """Count a call out; one that was refused is no request of the minute in which it came."""
    pipeline = _client().pipeline(transaction=False)
    pipeline.zrem(_running(key), name)
    if refused is not None:
        _add(pipeline, _of_minute(key, refused.minute), "requests", -1)
    await _try(pipeline.execute())


def note_tokens(key: str, tokens: int) -> None:
    """Without waiting: the call is over."""
    pipeline = _client().pipeline(transaction=False)
    _add(pipeline, _of_minute(key, int(time.time()) // 60), "tokens", tokens)
    _soon(_try(pipeline.execute()))


def keep_alive(running: Mapping[str, Collection[str]]) -> None:
    """The background's: the calls of this process go on, also where Redis has forgotten them. The sets are live."""
    kept = {key: names for key, live in running.items() if (names := tuple(live))}
    if not kept or not is_there():
        return
    until = time.time() + ALIVE_SECONDS
    pipeline = _plain_client().pipeline(transaction=False)
    for key, names in kept.items():
        pipeline.zadd(_running(key), dict.fromkeys(names, until))
        pipeline.expire(_running(key), KEPT_SECONDS)
    try:
        pipeline.execute()
        # Whoever left meanwhile may have been counted out before this put it back.
        for key, names in kept.items():
            if gone := [name for name in names if name not in running[key]]:
                pipeline.zrem(_running(key), *gone)
        pipeline.execute()
    except _faults() as error:
        logger.warning("Redis does not answer (%s).", type(error).__name__)


# Budgets.

# How long a counter of a budget and the reservations are kept without use: longer than a month, and than any call.
COUNTER_KEPT_SECONDS, RESERVED_KEPT_SECONDS = 35 * 86_400, 86_400

# KEYS: running calls of each scope (the owner, and the key if there is one), their reservations, then one counter per
# budget. ARGV: the time, the time until which the call counts, its name, what it reserves, the number of scopes; then
# five values per budget (`Meter`). Returns the place
# of the budget that objects (-1 for none) and whether it is used up. A counter never knows less than the process that
# asks, which reads what chats have used from the database.
_RESERVE = """
local now, till, name, scopes = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[6])
local open = {}
for scope = 1, scopes do
  local tokens, micros, calls = 0, 0, 0
  redis.call('ZREMRANGEBYSCORE', KEYS[scope], '-inf', now)
  for _, other in ipairs(redis.call('ZRANGE', KEYS[scope], 0, -1)) do
    local held = other ~= name and redis.call('HGET', KEYS[scope + scopes], other)
    if held then
      local first, second = string.match(held, '(%d+):(%d+)')
      tokens, micros, calls = tokens + first, micros + second, calls + 1
    end
  end
  open[scope] = {tokens, micros, calls}
end
for place = 0, #KEYS - 2 * scopes - 1 do
  local base = 6 + place * 5
  local scope, unit = tonumber(ARGV[base + 1]), tonumber(ARGV[base + 2])
  local used, limit, amount = tonumber(ARGV[base + 3]), tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5])
  local counter = KEYS[place + 2 * scopes + 1]
  local counted = tonumber(redis.call('GET', counter) or '0')
  if used > counted then
    counted = used
    redis.call('SET', counter, ARGV[base + 3], 'EX', COUNTER_KEPT)
  end
  if counted >= limit then return {place, 1} end
  if open[scope][3] > 0 and counted + open[scope][unit] + amount > limit then return {place, 0} end
end
for scope = 1, scopes do
  redis.call('ZADD', KEYS[scope], till, name)
  redis.call('EXPIRE', KEYS[scope], RUNNING_KEPT)
  redis.call('HSET', KEYS[scope + scopes], name, ARGV[4] .. ':' .. ARGV[5])
  redis.call('EXPIRE', KEYS[scope + scopes], RESERVED_KEPT)
end
return {-1, 0}
"""
_RESERVE = (
    _RESERVE.replace("COUNTER_KEPT", str(COUNTER_KEPT_SECONDS))
    .replace("RUNNING_KEPT", str(KEPT_SECONDS))
    .replace("RESERVED_KEPT", str(RESERVED_KEPT_SECONDS))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One budget in whole numbers, of tokens or of millionths of a dollar; `used` as this process knows it."""

    counter: str
    is_owners: bool
    is_cost: bool
    used: int
    limit: int
    amount: int


def scope_of_owner(owner: int) -> str:
    """Beside the keys, which go by their prefixes; those have no dash."""
    return f"owner-{owner}"


async def reserve(
    name: str, scopes: tuple[str, ...], held: tuple[int, int], meters: Sequence[Meter]
) -> tuple[int, bool] | None:
    """Reserve for the owner, and for the key if there is one. Which budget objects (-1 for none), and whether it is
    used up; None where Redis does not answer."""
    now = time.time()
    names = [*map(_running, scopes), *map(_reserved, scopes), *(_counter(meter.counter) for meter in meters)]
    values: list[Any] = [now, now + ALIVE_SECONDS, name, *held, len(scopes)]
    for meter in meters:
        values += [1 if meter.is_owners else 2, 2 if meter.is_cost else 1, meter.used, meter.limit, meter.amount]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            place, is_used_up = await _client().eval(_RESERVE, len(names), *names, *values)
    except _faults() as error:
        logger.warning("Redis does not count budgets (%s); this process does.", type(error).__name__)
        return None
    except asyncio.CancelledError:
        settle(name, scopes, [])
        raise
    return int(place), bool(is_used_up)


def settle(
    name: str,
    scopes: tuple[str, ...],
    counters: Sequence[tuple[str, int]],
    *,
    when_done: Callable[[], None] = lambda: None,
) -> None:
    """Without waiting: add what the call used to each counter, and forget what it had reserved. `when_done` is called
    when Redis has answered, or does not."""
    _soon(_settle(_settling(name, scopes, counters), when_done))


async def settled(name: str, scopes: tuple[str, ...], counters: Sequence[tuple[str, int]]) -> None:
    """The same, and wait until Redis has answered, or does not."""
    await _try(_settling(name, scopes, counters))


def _settling(name: str, scopes: tuple[str, ...], counters: Sequence[tuple[str, int]]) -> Any:
    pipeline = _client().pipeline(transaction=True)
    for counter, amount in counters:
        pipeline.incrby(_counter(counter), amount)
        pipeline.expire(_counter(counter), COUNTER_KEPT_SECONDS)
    for scope in scopes:
        pipeline.hdel(_reserved(scope), name)
    pipeline.zrem(_running(scopes[0]), name)  # `leave` counts it out of its key
    return pipeline.execute()


async def _settle(work: Any, when_done: Callable[[], None]) -> None:
    try:
        await _try(work)
    finally:
        when_done()


def _reserved(scope: str) -> str:
    return f"{PREFIX}:{scope}:reserved"


def _counter(name: str) -> str:
    return f"{PREFIX}:{name}"


async def close() -> None:
    client = _clients.pop(asyncio.get_running_loop())
    if client is not None:
        await client.aclose()


async def _try(work: Any) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work
    except _faults() as error:
        logger.warning("Redis did not count the end of a call (%s).", type(error).__name__)


def _soon(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _add(pipeline: Any, minute: str, name: str, amount: int) -> None:
    """Perhaps the first in that minute: then nobody else has said how long it is kept."""
    pipeline.hincrby(minute, name, amount)
    pipeline.expire(minute, MINUTE_KEPT_SECONDS)


def _of_minute(key: str, minute: int) -> str:
    return f"{PREFIX}:{key}:{minute}"


def _running(key: str) -> str:
    return f"{PREFIX}:{key}:running"


def _faults() -> tuple[type[Exception], ...]:
    from redis import RedisError

    return RedisError, OSError, TimeoutError


def _client() -> Any:
    return _clients.of(asyncio.get_running_loop())


def _new_client() -> Any:
    from redis.asyncio import Redis

    # No limit of its own, which may lose a cancellation (`relay.runtime.redis_layer`): whoever asks has one.
    return Redis.from_url(settings.REDIS_URL, socket_timeout=None)


_clients = PerLoop(_new_client)


@cache
def _plain_client() -> redis.Redis:
    from redis import Redis

    return Redis.from_url(settings.REDIS_URL, socket_timeout=2)
