"""The minute and the calls at once as Redis counts them, a real one: also when it stops, forgets or answers late."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pytest
import redis
from django.db import OperationalError

from project.accounts.models import User
from relay.usage import counters, redis_counters, tables
from tests.clients import HI_BODY, RunningRelay, send_request
from tests.relay.gateway.test_limits import CHAT, early_in_the_minute, key_with
from tests.servers.processes import wait_for
from tests.vendors import Vendors, says

pytestmark = pytest.mark.any_database

RUNNING = "parley:key:k:running"
T = TypeVar("T")


def done(work: Callable[[], Awaitable[T]]) -> T:
    async def closed() -> T:
        try:
            return await work()
        finally:
            await redis_counters.close()

    return asyncio.run(closed())


def entered(name: str) -> redis_counters.RateCounts:
    counted = done(lambda: redis_counters.enter("k", name))
    assert counted is not None
    return counted


@contextmanager
def standing_still(store: redis.Redis) -> Iterator[Callable[[], None]]:
    """It takes connections and bytes, and reads them when it goes on."""
    process = int(store.info("server")["process_id"])
    os.kill(process, signal.SIGSTOP)
    try:
        yield lambda: os.kill(process, signal.SIGCONT)
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_call_counts_for_as_long_as_it_is_carried(store: redis.Redis) -> None:
    entered("one")
    store.pexpire(RUNNING, 200)  # its minute is nearly over
    redis_counters.keep_alive({"k": {"one"}})
    assert store.ttl(RUNNING) > 30
    assert entered("two").running == 1


def test_a_redis_that_has_forgotten_is_told_again_what_is_carried(store: redis.Redis) -> None:
    entered("one")
    store.flushall()
    redis_counters.keep_alive({"k": {"one"}})
    assert entered("two").running == 1


class Leaving(set[str]):
    """Its members leave as soon as they have been read."""

    def __iter__(self) -> Iterator[str]:
        names = list(super().__iter__())
        self.clear()
        return iter(names)


def test_a_call_that_ends_while_it_is_kept_alive_is_not_put_back(store: redis.Redis) -> None:
    redis_counters.keep_alive({"k": Leaving({"one"})})
    assert store.zcard(RUNNING) == 0


def test_without_the_database_redis_still_knows_what_is_carried(
    store: redis.Redis, relay: RunningRelay, ada: User, vendors: Vendors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("the database is away")

    key = key_with(ada, concurrent_streams=1)
    vendors.plays("openai-chat", replace(says(*["word "] * 40), delay=0.05))
    running = threading.Thread(
        target=send_request, args=(relay, CHAT, {**HI_BODY, "stream": True}), kwargs={"x_api_key": key}
    )
    running.start()
    vendors.wait_for(1)
    store.flushall()
    monkeypatch.setattr(tables, "add_days", away)
    with pytest.raises(OperationalError):
        counters.sync()
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 429
    running.join(10)


def counted_late(store: redis.Redis, relay: RunningRelay, key: str, vendors: Vendors) -> bool:
    """Whether Redis has counted a call that it was asked about while it stood still: not by a new connection, on which
    it is greeted first."""
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200
    before = len(vendors.requests)
    vendors.plays("openai-chat", replace(says(*["word "] * 40), delay=0.05))
    late = threading.Thread(
        target=send_request, args=(relay, CHAT, {**HI_BODY, "stream": True}), kwargs={"x_api_key": key}
    )
    with standing_still(store) as go_on:
        late.start()
        vendors.wait_for(before + 1)
        go_on()
        end = time.monotonic() + 1.5
        while not (is_counted := bool(store.keys("*:running"))) and time.monotonic() < end:
            time.sleep(0.02)
        late.join(10)
    return is_counted


def test_a_call_that_redis_counted_too_late_is_counted_out_all_the_same(
    store: redis.Redis, relay: RunningRelay, ada: User, vendors: Vendors
) -> None:
    key = key_with(ada, concurrent_streams=1)
    assert any(counted_late(store, relay, key, vendors) for _ in range(5))
    wait_for(lambda: not store.keys("*:running"), seconds=5, what="the call counted out")
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200


def test_client_that_leaves_while_it_is_counted_takes_no_place(store: redis.Redis) -> None:
    async def leave_early() -> None:
        await redis_counters.enter("k", "first")
        with standing_still(store) as go_on:
            entering = asyncio.ensure_future(redis_counters.enter("k", "early"))
            await asyncio.sleep(0.1)
            entering.cancel()
            await asyncio.wait([entering])
            go_on()
            await asyncio.sleep(0.5)

    done(leave_early)
    assert store.zrange(RUNNING, 0, -1) == [b"first"]


def test_a_refusal_is_taken_back_from_the_minute_in_which_it_was_counted(store: redis.Redis) -> None:
    early_in_the_minute()
    counted = entered("one")
    before = counted._replace(minute=counted.minute - 1)
    done(lambda: redis_counters.leave("k", "one", refused=before))
    assert entered("two").requests == 1


def test_no_minute_is_kept_for_ever(store: redis.Redis) -> None:
    async def note() -> None:
        redis_counters.note_tokens("k", 5)
        await asyncio.sleep(0.1)

    done(note)
    minutes = store.keys("parley:key:k:*")
    assert minutes
    assert all(0 < store.ttl(minute) <= 120 for minute in minutes)
