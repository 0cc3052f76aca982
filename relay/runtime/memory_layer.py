"""In-memory channel layer: delivers group messages to the sockets of this process, which live in one event loop.

It neither copies nor expires anything (decision 8): a receiver must not change a message, and a socket that goes away
takes its name out of its groups.
"""

import asyncio
from collections import Counter, defaultdict
from typing import Any
from uuid import uuid4

from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

Message = dict[str, Any]

# Sent in place of lost messages: the socket reads its state from the database.
RESYNC: Message = {"type": "resync"}
PROCESS_GROUP = "process"  # all sockets of this process


class LocalChannelLayer(BaseChannelLayer):
    extensions = ["groups", "flush"]
    is_degraded = False  # whether messages of other processes are lost

    def __init__(self, *, capacity: int = 100, **options: Any) -> None:
        super().__init__(capacity=capacity, **options)
        self.queues: dict[str, asyncio.Queue[Message]] = {}
        self.groups: defaultdict[str, set[str]] = defaultdict(set)
        self.memberships: Counter[str] = Counter()
        self.loop: asyncio.AbstractEventLoop | None = None

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
        self.loop = asyncio.get_running_loop()
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
            del self.memberships[channel]
            # An empty queue stays, because its socket may be waiting for it.
            if channel in self.queues and not self.queues[channel].empty():
                del self.queues[channel]

    async def group_send(self, group: str, message: Message) -> None:
        self.send_to_group(group, message)

    def send_to_group(self, group: str, message: Message) -> None:
        """Deliver to all sockets of this process in the group. Safe from any thread."""
        self._send_here(group, message)

    def send_to_process(self, message: Message) -> None:
        """Deliver to every socket of this process. Safe from any thread."""
        self._send_here(PROCESS_GROUP, message)

    def _send_here(self, group: str, message: Message) -> None:
        loop = self.loop
        if group not in self.groups or loop is None or loop.is_closed():
            return
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._deliver(group, message)
        else:
            loop.call_soon_threadsafe(self._deliver, group, message)

    def _deliver(self, group: str, message: Message) -> None:
        for channel in tuple(self.groups.get(group, ())):
            queue = self._queue(channel)
            is_full = queue.full()
            while is_full and not queue.empty():
                queue.get_nowait()
            queue.put_nowait(RESYNC if is_full else message)  # a socket whose queue is full reads its state again

    async def flush(self) -> None:
        self.queues.clear()
        self.groups.clear()
        self.memberships.clear()

    def close(self) -> None:
        """End what runs beside the event loop."""

    def _queue(self, channel: str) -> asyncio.Queue[Message]:
        if channel not in self.queues:
            self.queues[channel] = asyncio.Queue(self.capacity)
        return self.queues[channel]
