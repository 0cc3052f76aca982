"""Rate limits and budgets in Redis, exact across processes: minutes, concurrent calls, reservations.

Redis is asked only for keys that have such limits. Without an answer no call is refused: each process counts for
itself, and the database adds the counts up once a second. Its client is imported on first use, because it takes six
megabytes that most installations never need.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from django.conf import settings

from history.db.process_state import process_state
from relay.runtime.event_loop import start_task

logger = logging.getLogger(__name__)

PREFIX = "parley:key"
ALIVE_SECONDS = 10.0  # a call counts as ended when its process has not renewed it for this time
PATIENCE_SECONDS = 0.25
KEPT_SECONDS, MINUTE_KEPT_SECONDS = 60, 120

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()  # of each event loop


class RateCounts(NamedTuple):
    """What was counted before this call, in this minute."""

    minute: int
    requests: int
    tokens: int
    running: int


def is_enabled() -> bool:
    return bool(settings.REDIS_URL)


async def enter(key: str, name: str) -> RateCounts | None:
    """Count a call in. None if Redis does not answer. Keys are named by their prefix."""
    now = time.time()
    minute, running = _redis_key(key, int(now) // 60), _redis_key(key, "running")
    pipeline = _client().pipeline(transaction=True)
    _add(pipeline, minute, "requests", 1)
    pipeline.hget(minute, "tokens")
    pipeline.zremrangebyscore(running, "-inf", now)
    pipeline.zadd(running, {name: now + ALIVE_SECONDS})
    pipeline.zcard(running)
    pipeline.expire(running, KEPT_SECONDS)
    try:
        answers = await _ask(pipeline.execute(), "Redis does not count the relay's calls (%s); this process does.")
    except asyncio.CancelledError:  # it may have been counted in
        start_task(leave(key, name))
        raise
    if answers is None:
        return None
    requests, _, tokens, _, _, count, _ = answers
    return RateCounts(
        minute=int(now) // 60, requests=int(requests) - 1, tokens=int(tokens or 0), running=int(count) - 1
    )


async def leave(key: str, name: str, *, refused: RateCounts | None = None) -> None:
    """Count a call out; a refused one does not count as a request of its minute."""
    pipeline = _client().pipeline(transaction=False)
    pipeline.zrem(_redis_key(key, "running"), name)
    if refused is not None:
        _add(pipeline, _redis_key(key, refused.minute), "requests", -1)
    await _ask(pipeline.execute())


def note_tokens(key: str, tokens: int) -> None:
    """Add to this minute, without waiting."""
    pipeline = _client().pipeline(transaction=False)
    _add(pipeline, _redis_key(key, int(time.time()) // 60), "tokens", tokens)
    start_task(_ask(pipeline.execute()))


def _add(pipeline: Any, minute: str, name: str, amount: int) -> None:
    pipeline.hincrby(minute, name, amount)
    pipeline.expire(minute, MINUTE_KEPT_SECONDS)  # it may be the first of that minute


def keep_alive(running: Mapping[str, Collection[str]]) -> None:
    """Renew the calls of this process, also if Redis has lost them. The collections change meanwhile."""
    kept = {key: names for key, live in running.items() if (names := tuple(live))}
    if not kept or not is_enabled():
        return
    from redis import Redis

    until = time.time() + ALIVE_SECONDS
    client = process_state.find(Redis) or process_state.keep(Redis.from_url(settings.REDIS_URL, socket_timeout=2))
    pipeline = client.pipeline(transaction=False)
    for key, names in kept.items():
        pipeline.zadd(_redis_key(key, "running"), dict.fromkeys(names, until))
        pipeline.expire(_redis_key(key, "running"), KEPT_SECONDS)
    try:
        pipeline.execute()
        # A call that ended meanwhile may have been counted out before this put it back.
        for key, names in kept.items():
            if gone := [name for name in names if name not in running[key]]:
                pipeline.zrem(_redis_key(key, "running"), *gone)
        pipeline.execute()
    except _faults() as error:
        logger.warning("Redis does not answer (%s).", type(error).__name__)


# Longer than a month. The reservations in the script are kept for a day, longer than any call.
COUNTER_KEPT_SECONDS = 35 * 86_400

# KEYS: running calls of each scope (the owner, and the key if there is one), their reservations, then one counter per
# budget. ARGV: the time, the time until which the call counts, its name, what it reserves, the number of scopes; then
# five values per budget (`Meter`). Returns the place of the budget that objects (-1 for none) and whether it is used
# up. A counter never holds less than the calling process knows, which reads what chats have used from the database.
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
    redis.call('SET', counter, ARGV[base + 3], 'EX', 3024000)
  end
  if counted >= limit then return {place, 1} end
  if open[scope][3] > 0 and counted + open[scope][unit] + amount > limit then return {place, 0} end
end
for scope = 1, scopes do
  redis.call('ZADD', KEYS[scope], till, name)
  redis.call('EXPIRE', KEYS[scope], 60)
  redis.call('HSET', KEYS[scope + scopes], name, ARGV[4] .. ':' .. ARGV[5])
  redis.call('EXPIRE', KEYS[scope + scopes], 86400)
end
return {-1, 0}
"""


class Meter(NamedTuple):
    """One budget as the script reads it. `scope` and `unit` are places in its lists: owner or key, tokens or money."""

    counter: str
    scope: int
    unit: int
    used: int
    limit: int
    amount: int


def scope_of_owner(owner: int) -> str:
    """Prefixes of keys have no dash."""
    return f"owner-{owner}"


async def reserve(
    name: str, scopes: tuple[str, ...], held: tuple[int, int], meters: Sequence[Meter]
) -> tuple[int, bool] | None:
    """The place of the budget that objects (-1 for none), and whether it is used up. None if Redis does not answer."""
    now = time.time()
    names = [*(_redis_key(scope, "running") for scope in scopes), *(_redis_key(scope, "reserved") for scope in scopes)]
    names += [f"{PREFIX}:{meter.counter}" for meter in meters]
    values: list[Any] = [now, now + ALIVE_SECONDS, name, *held, len(scopes)]
    for meter in meters:
        values += meter[1:]
    work = _client().eval(_RESERVE, len(names), *names, *values)
    try:
        answers = await _ask(work, "Redis does not count budgets (%s); this process does.")
    except asyncio.CancelledError:
        settle(name, scopes, [])
        raise
    return answers and (int(answers[0]), bool(answers[1]))


def settle(name: str, scopes: tuple[str, ...], counters: Sequence[tuple[str, int]]) -> asyncio.Task[Any]:
    """Add what the call used to each counter and drop its reservation, in a task that waits for the answer of Redis."""
    # The client of now: it may be closed before the task begins.
    pipeline = _client().pipeline(transaction=True)
    for counter, amount in counters:
        pipeline.incrby(f"{PREFIX}:{counter}", amount)
        pipeline.expire(f"{PREFIX}:{counter}", COUNTER_KEPT_SECONDS)
    for scope in scopes:
        pipeline.hdel(_redis_key(scope, "reserved"), name)
    pipeline.zrem(_redis_key(scopes[0], "running"), name)  # `leave` counts it out of its key
    return start_task(_ask(pipeline.execute()))


async def close() -> None:
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


async def _ask(work: Awaitable[Any], complaint: str = "Redis did not count the end of a call (%s).") -> Any:
    """The answer of Redis; None if there is none in time."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await work
    except _faults() as error:
        logger.warning(complaint, type(error).__name__)
        return None


def _redis_key(scope: str, what: int | Literal["running", "reserved"]) -> str:
    return f"{PREFIX}:{scope}:{what}"


def _faults() -> tuple[type[Exception], ...]:
    from redis import RedisError

    return RedisError, OSError, TimeoutError


def _client() -> Any:
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        from redis.asyncio import Redis

        # The timeout of its own may lose a cancellation (`relay.runtime.redis_layer`); callers have one.
        _clients[loop] = Redis.from_url(settings.REDIS_URL, socket_timeout=None)
    return _clients[loop]
