"""The channel layer of one process: members of a group get every message in order, and leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest
from channels.exceptions import ChannelFull

from relay.runtime.memory_layer import LocalChannelLayer


@pytest.fixture
def layer() -> LocalChannelLayer:
    return LocalChannelLayer(capacity=3)


def is_empty(layer: LocalChannelLayer) -> bool:
    return not (layer.queues or layer.groups or layer.memberships)


async def test_group_members_get_every_message_in_order_and_others_none(layer: LocalChannelLayer) -> None:
    one, two, other = [await layer.new_channel() for _ in range(3)]
    for channel in (one, two):
        await layer.group_add("group", channel)
    await layer.group_add("elsewhere", other)
    for n in range(3):
        await layer.group_send("group", {"type": "said", "n": n})
    for channel in (one, two):
        assert [(await layer.receive(channel))["n"] for _ in range(3)] == [0, 1, 2]
    assert not layer.queues


async def test_who_waits_is_woken_again_and_again(layer: LocalChannelLayer) -> None:
    await layer.group_add("group", "me")
    for n in range(5):
        waiting = asyncio.ensure_future(layer.receive("me"))
        await asyncio.sleep(0)
        await layer.group_send("group", {"type": "said", "n": n})
        assert await waiting == {"type": "said", "n": n}


async def test_a_socket_that_falls_behind_is_told_to_resync(layer: LocalChannelLayer) -> None:
    for channel in ("slow", "fast"):
        await layer.group_add("group", channel)
    for n in range(5):
        await layer.group_send("group", {"type": "said", "n": n})
        assert (await layer.receive("fast"))["n"] == n
    assert await layer.receive("slow") == {"type": "resync"}
    assert (await layer.receive("slow"))["n"] == 4


async def test_a_thread_may_send_to_a_group(layer: LocalChannelLayer) -> None:
    await layer.group_add("group", "me")
    waiting = asyncio.ensure_future(layer.receive("me"))
    await asyncio.to_thread(layer.send_to_group, "group", {"type": "said"})
    assert await asyncio.wait_for(waiting, 5) == {"type": "said"}


async def test_a_channel_that_is_full_says_so_to_a_single_sender(layer: LocalChannelLayer) -> None:
    for _ in range(3):
        await layer.send("me", {"type": "said"})
    with pytest.raises(ChannelFull):
        await layer.send("me", {"type": "said"})


async def test_nothing_is_left_of_a_socket_that_went_with_messages_unread(layer: LocalChannelLayer) -> None:
    for group in ("group", "person", "group"):
        await layer.group_add(group, "me")
    await layer.group_send("group", {"type": "said"})
    for group in ("group", "person", "group"):
        await layer.group_discard(group, "me")
    assert is_empty(layer)


async def test_nothing_is_left_of_a_socket_that_went_while_it_waited(layer: LocalChannelLayer) -> None:
    await layer.group_add("group", "me")
    waiting = asyncio.ensure_future(layer.receive("me"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await layer.group_discard("group", "me")
    assert is_empty(layer)


async def test_who_leaves_one_group_while_waiting_is_woken_by_the_next(layer: LocalChannelLayer) -> None:
    await layer.group_add("group", "me")
    waiting = asyncio.ensure_future(layer.receive("me"))
    await asyncio.sleep(0)
    await layer.group_discard("group", "me")
    await layer.group_add("next group", "me")
    await layer.group_send("next group", {"type": "said", "n": 1})
    assert await waiting == {"type": "said", "n": 1}
