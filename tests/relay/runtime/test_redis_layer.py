"""The channel layer of several processes: own sockets never depend on Redis, others resync after an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from relay.runtime import redis_layer
from relay.runtime.memory_layer import PROCESS_GROUP
from relay.runtime.redis_layer import RedisChannelLayer
from tests.servers.proxy import proxy
from tests.servers.redis import RedisServer, redis_server

pytestmark = pytest.mark.any_database


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"ANSWER": 0.3, "RETRY": 0.1, "BEAT": 0.1, "SILENCE": 0.6}
    for name, seconds in times.items():
        monkeypatch.setattr(redis_layer, f"{name}_SECONDS", seconds)


class Process:
    """What stands for one web process here: a layer, and one socket in a group."""

    def __init__(self, url: str) -> None:
        self.layer, self.heard = RedisChannelLayer(url=url, capacity=10_000), list[dict[str, Any]]()

    async def open(self) -> None:
        self.channel = await self.layer.new_channel()
        for group in (PROCESS_GROUP, "group"):
            await self.layer.group_add(group, self.channel)

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        while True:
            message = await asyncio.wait_for(self.layer.receive(self.channel), 10)
            self.heard.append(message)
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def send_json(self, n: int) -> None:
        self.layer.send_to_group("group", {"type": "said", "n": n})

    @property
    def numbers(self) -> list[int]:
        return [message["n"] for message in self.heard if message["type"] == "said"]


@pytest.fixture
async def processes(server: RedisServer) -> AsyncIterator[tuple[Process, Process]]:
    one, other = Process(server.url), Process(server.url)
    await one.open()
    await other.open()
    yield one, other
    for process in (one, other):
        await asyncio.to_thread(process.layer.close)


async def test_messages_reach_every_process_once_and_in_order(processes: tuple[Process, Process]) -> None:
    one, other = processes
    for n in range(1_000):
        (one if n % 2 else other).send_json(n)
    for process in processes:
        while len(process.numbers) < 1_000:
            await process.until("said")
    for process in processes:
        assert sorted(process.numbers) == list(range(1_000))
        for parity in (0, 1):
            numbers = [n for n in process.numbers if n % 2 == parity]
            assert numbers == sorted(numbers)


def outages(server: RedisServer) -> dict[str, AbstractContextManager[None]]:
    return {"killed": server.killed(), "hanging": server.hanging()}


@pytest.mark.parametrize("outage", ["killed", "hanging"])
async def test_while_redis_is_away_a_process_serves_its_own_sockets(
    processes: tuple[Process, Process], server: RedisServer, outage: str
) -> None:
    one, other = processes
    one.send_json(1)
    await other.until("said", n=1)
    with outages(server)[outage]:
        one.send_json(2)
        await one.until("said", n=2)
        for process in processes:
            await process.until("degraded.changed", is_degraded=True)
            assert process.layer.is_degraded
        one.send_json(3)
        await one.until("said", n=3)
        other.send_json(4)
        await other.until("said", n=4)
    for process in processes:
        await process.until("degraded.changed", is_degraded=False)
        await process.until("resync")
        assert not process.layer.is_degraded
    one.send_json(5)
    await other.until("said", n=5)


async def test_a_process_that_starts_without_redis_says_so(tmp_path: Path) -> None:
    alone = Process("redis://127.0.0.1:1/0")
    await alone.open()
    assert alone.layer.is_degraded
    alone.send_json(1)
    assert (await alone.until("said"))["n"] == 1
    await asyncio.to_thread(alone.layer.close)


async def test_what_does_not_fit_into_the_queue_is_made_up_for(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = processes
    one.layer.publisher.has_lost = True
    one.send_json(1)
    await other.until("resync")
    await other.until("said", n=1)


async def test_a_command_that_ends_at_once_has_published(server: RedisServer) -> None:
    listening, ending = Process(server.url), Process(server.url)
    await listening.open()
    ending.send_json(7)
    await asyncio.to_thread(ending.layer.close)
    await listening.until("said", n=7)
    await asyncio.to_thread(listening.layer.close)


async def test_a_socket_that_opens_before_the_subscription_reads_the_database(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow Redis: what other processes said before the subscription never arrives."""
    monkeypatch.setattr(redis_layer, "START_SECONDS", 0.05)
    monkeypatch.setattr(redis_layer, "ANSWER_SECONDS", 5.0)
    with proxy(server.port) as network:
        one, late = Process(server.url), Process(f"redis://127.0.0.1:{network.port}/0")
        await one.open()
        with network.silent():
            await late.open()
            one.send_json(1)
            await one.until("said", n=1)
        await late.until("resync")
        one.send_json(2)
        await late.until("said", n=2)
        for process in (one, late):
            await asyncio.to_thread(process.layer.close)
