"""The minute and the calls at once of keys with limits, in Redis: exact across processes.

Redis is asked only for keys that have such limits. Where it is not there or does not answer, nobody is refused for it:
each process counts for itself, and the database brings the counts together once a second. Its client is loaded with
the first question: that is six megabytes which most installations never need.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings

from relay.per_loop import PerLoop

if TYPE_CHECKING:
    import redis

logger = logging.getLogger(__name__)

PREFIX = "parley:key"
# A call whose process gives no sign of life for so long is not carried any more.
ALIVE_SECONDS = 10.0
PATIENCE_SECONDS = 0.25

_tasks: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Counted:
    """Before this call."""

    requests: int
    tokens: int
    running: int


def is_there() -> bool:
    return bool(settings.REDIS_URL)


async def enter(key: str, name: str) -> Counted | None:
    """Count a call in; what there was before it. None where Redis does not answer. Keys go by their prefix."""
    now = time.time()
    minute, running = _minute(key), f"{PREFIX}:{key}:running"
    pipeline = _client().pipeline(transaction=True)
    pipeline.hincrby(minute, "requests", 1)
    pipeline.hget(minute, "tokens")
    pipeline.expire(minute, 120)
    pipeline.zremrangebyscore(running, "-inf", now)
    pipeline.zadd(running, {name: now + ALIVE_SECONDS})
    pipeline.zcard(running)
    pipeline.expire(running, 60)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            requests, tokens, _, _, _, count, _ = await pipeline.execute()
    except _faults() as error:
        logger.warning("Redis does not count the relay's calls (%s); this process does.", type(error).__name__)
        return None
    return Counted(requests=int(requests) - 1, tokens=int(tokens or 0), running=int(count) - 1)


async def leave(key: str, name: str, *, request_too: bool = False) -> None:
    """Count a call out; one that was refused is no request."""
    pipeline = _client().pipeline(transaction=False)
    pipeline.zrem(f"{PREFIX}:{key}:running", name)
    if request_too:
        pipeline.hincrby(_minute(key), "requests", -1)
    await _try(pipeline.execute())


def note_tokens(key: str, tokens: int) -> None:
    """Without waiting: the call is over."""
    task = asyncio.get_running_loop().create_task(_try(_client().hincrby(_minute(key), "tokens", tokens)))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def keep_alive(running: Mapping[str, Iterable[str]]) -> None:
    """The background's: the calls of this process go on."""
    if not is_there():
        return
    until = time.time() + ALIVE_SECONDS
    pipeline = _plain_client().pipeline(transaction=False)
    for key, names in running.items():
        for name in tuple(names):
            pipeline.zadd(f"{PREFIX}:{key}:running", {name: until}, xx=True)
    try:
        pipeline.execute()
    except _faults() as error:
        logger.warning("Redis does not answer (%s).", type(error).__name__)


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


def _minute(key: str) -> str:
    return f"{PREFIX}:{key}:{int(time.time()) // 60}"


def _faults() -> tuple[type[Exception], ...]:
    from redis import RedisError

    return RedisError, OSError, TimeoutError


def _client() -> Any:
    return _clients.of(asyncio.get_running_loop())


def _new_client() -> Any:
    from redis.asyncio import Redis

    # No limit of its own, which may lose a cancellation (`relay.redis_layer`): whoever asks has one.
    return Redis.from_url(settings.REDIS_URL, socket_timeout=None)


_clients = PerLoop(_new_client)


@cache
def _plain_client() -> redis.Redis:
    from redis import Redis

    return Redis.from_url(settings.REDIS_URL, socket_timeout=2)
