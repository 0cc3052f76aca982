"""Timeouts of silent upstreams.

aiohttp would set a timer for each piece of a reply and cancel it when the next one comes. Nearly always that is soon,
so one timer looks after all calls of an event loop a few times a second, and cancels those that wait in vain.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop

from relay.providers.endpoints import Endpoint
from relay.providers.event_stream import network_errors
from relay.runtime.per_loop import PerLoop

LOOK_SECONDS = 0.25
# While we are still speaking, nobody is silent: a request may take as long as it takes at so many bytes a second.
SLOWEST = 64 * 1024


class _Watch:
    """All that is waited for in one event loop."""

    def __init__(self) -> None:
        self.waiting: set[words_of] = set()
        self.timer: asyncio.TimerHandle | None = None

    def add(self, one: words_of) -> None:
        self.waiting.add(one)
        if self.timer is None:
            self.timer = self._later()

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for one in [one for one in self.waiting if one.until <= now]:
            one.give_up()
        self.timer = self._later() if self.waiting else None

    def _later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)


_watches = PerLoop(_Watch)


class words_of(network_errors):  # noqa: N801 - reads as a clause: with words_of(endpoint, has_begun=True)
    """Around each wait for an upstream's next words; may be entered again and again. The network's errors are ours.

    `sending`: so many bytes are to be sent before it can say anything.
    """

    __slots__ = ("is_over", "loop", "seconds", "task", "until", "watch")

    def __init__(self, endpoint: Endpoint, loop: AbstractEventLoop, *, has_begun: bool, sending: int = 0) -> None:
        super().__init__(endpoint, has_begun=has_begun)
        self.loop = loop
        self.seconds = endpoint.patience.idle + sending / SLOWEST
        self.is_over = False

    @property
    def subject(self) -> str:
        """Callers read the provider's name: where it is reached is the operator's business."""
        return f"The provider {self.endpoint.name}"

    def __enter__(self) -> None:
        self.task = asyncio.current_task(self.loop)
        self.until = self.loop.time() + self.seconds
        self.watch = _watches.of(self.loop)
        self.watch.add(self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.watch.waiting.discard(self)
        if self.is_over and self.task is not None and isinstance(error, asyncio.CancelledError):
            self.task.uncancel()
            error = TimeoutError()
        super().__exit__(kind, error, trace)

    def give_up(self) -> None:
        self.watch.waiting.discard(self)
        if self.task is not None:
            self.is_over = True
            self.task.cancel()
