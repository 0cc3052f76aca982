"""The channel layer of an installation with one process: messages go from hand to hand, within one event loop.

Channels' own layer for this looks through all channels and groups at every message and copies each message for each
receiver, some hundred times for each frame of an answer that as many watch. Ours neither copies nor expires anything:
whoever receives a message must not change it, and a socket that goes away takes its name out of its groups; what nobody
has fetched by then goes with the last of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any
from uuid import uuid4

from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

Message = dict[str, Any]


class LocalChannelLayer(BaseChannelLayer):
    extensions = ["groups", "flush"]

    def __init__(self, *, capacity: int = 100, **options: Any) -> None:
        super().__init__(capacity=capacity, **options)
        self.queues: dict[str, asyncio.Queue[Message]] = {}
        self.groups: defaultdict[str, set[str]] = defaultdict(set)
        self.memberships: Counter[str] = Counter()

    async def new_channel(self, prefix: str = "local") -> str:
        return f"{prefix}!{uuid4().hex}"

    async def send(self, channel: str, message: Message) -> None:
        try:
            self._queue(channel).put_nowait(message)
        except asyncio.QueueFull:
            raise ChannelFull(channel) from None

    async def receive(self, channel: str) -> Message:
        queue = self._queue(channel)
        try:
            return await queue.get()
        finally:
            if queue.empty() and self.queues.get(channel) is queue:
                del self.queues[channel]

    async def group_add(self, group: str, channel: str) -> None:
        if channel not in self.groups[group]:
            self.groups[group].add(channel)
            self.memberships[channel] += 1

    async def group_discard(self, group: str, channel: str) -> None:
        if channel not in self.groups.get(group, ()):
            return
        self.groups[group].remove(channel)
        if not self.groups[group]:
            del self.groups[group]
        self.memberships[channel] -= 1
        if not self.memberships[channel]:
            self._forget(channel)

    def _forget(self, channel: str) -> None:
        """An empty queue stays: somebody may be waiting at it."""
        del self.memberships[channel]
        if channel in self.queues and not self.queues[channel].empty():
            del self.queues[channel]

    async def group_send(self, group: str, message: Message) -> None:
        """To everybody in it; who has not read for so long that nothing more fits, misses it."""
        for channel in tuple(self.groups.get(group, ())):
            queue = self._queue(channel)
            if not queue.full():
                queue.put_nowait(message)

    async def flush(self) -> None:
        self.queues.clear()
        self.groups.clear()
        self.memberships.clear()

    def _queue(self, channel: str) -> asyncio.Queue[Message]:
        if channel not in self.queues:
            self.queues[channel] = asyncio.Queue(self.capacity)
        return self.queues[channel]
