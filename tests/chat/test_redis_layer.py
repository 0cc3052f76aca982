"""The channel layer of several processes: who is to end ends, at whichever moment; a Redis that hangs holds nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from channels.layers import get_channel_layer
from django.conf import settings

from relay import redis_layer
from relay.redis_layer import PatientRedisLayer

# Redis is where the second database is, and there only those run that ask for one.
pytestmark = [pytest.mark.django_db, pytest.mark.skipif(not settings.REDIS_URL, reason="there is no Redis")]
# From the first step of a command to where it waits for Redis, and some more.
STEPS = 120


@pytest.fixture
async def layer() -> AsyncIterator[PatientRedisLayer]:
    layer = get_channel_layer()
    assert isinstance(layer, PatientRedisLayer)
    yield layer
    await layer.close_pools()


async def ends_at(step: int, work: Awaitable[object]) -> bool:
    """Does it end when it is cancelled after so many turns of the loop?"""
    task = asyncio.ensure_future(work)
    for _ in range(step):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=1)
    has_ended = task.done()
    task.cancel()
    return has_ended


async def test_a_socket_that_goes_is_gone_at_whichever_moment(layer: PatientRedisLayer) -> None:
    channel = await layer.new_channel()
    for step in range(STEPS):
        assert await ends_at(step, layer.receive(channel)), step


async def test_a_run_that_is_to_end_while_it_tells_something_ends(layer: PatientRedisLayer) -> None:
    await layer.group_add("room", await layer.new_channel())

    async def tell_for_ever() -> None:
        while True:
            await layer.group_send("room", {"type": "said"})

    for step in range(STEPS):
        assert await ends_at(step, tell_for_ever()), step


async def test_a_page_on_which_nothing_happens_keeps_its_socket(layer: PatientRedisLayer) -> None:
    """The layer waits anew when nothing has come; no connection may end before that."""
    layer.brpop_timeout = 0.2
    channel = await layer.new_channel()
    waiting = asyncio.ensure_future(layer.receive(channel))
    await asyncio.sleep(1)
    await layer.send(channel, {"type": "said"})
    assert await waiting == {"type": "said"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda layer: layer.receive("specific." + layer.client_prefix + "!me"),
        lambda layer: layer._clean_receive_backup(0, "me"),
        lambda layer: layer.send("me", {"type": "said"}),
        lambda layer: layer.group_add("room", "me"),
        lambda layer: layer.group_discard("room", "me"),
        lambda layer: layer.group_send("room", {"type": "said"}),
    ],
    ids=["receive", "have received", "send", "group_add", "group_discard", "group_send"],
)
async def test_a_redis_that_never_answers_keeps_nobody_waiting(
    ask: Callable[[PatientRedisLayer], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_layer, "PATIENCE_SECONDS", 0.1)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    layer = PatientRedisLayer(hosts=[{"address": f"redis://127.0.0.1:{port}", "socket_timeout": None}])
    layer.brpop_timeout = 0.1
    try:
        with pytest.raises(TimeoutError):
            await ask(layer)
    finally:
        await layer.close_pools()
        server.close()
