"""Cancellation of calls: client disconnects, revoked keys, the end of the process.

After a disconnect a call is cancelled at once, or drained for a while so that the record is complete. Draining is
bounded in time and in number, because the vendor charges for it.
"""

from __future__ import annotations

import asyncio

from django.conf import settings

_drained: set[CallCancellation] = set()


class CallCancellation:
    """Cancels the task in which it is made."""

    __slots__ = ("_let_go", "_loop", "_task", "_timer", "is_ended", "is_stopped")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task = asyncio.current_task(loop)
        self._timer: asyncio.TimerHandle | None = None
        self._let_go = False
        self.is_ended = False  # by the relay itself, because its key does not hold any more
        self.is_stopped = False  # with the process

    def client_is_gone(self) -> None:
        if settings.PARLEY_RELAY_ON_DISCONNECT == "drain" and len(_drained) < settings.PARLEY_RELAY_DRAINS:
            _drained.add(self)
            seconds = settings.PARLEY_RELAY_DRAIN_SECONDS
            self._timer = self._loop.call_later(seconds, self.let_go)
        else:
            self.let_go()

    def let_go(self) -> None:
        if self._task is not None:
            self._let_go = True
            self._task.cancel()

    def end_soon(self) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._task is not None and not self.is_ended:
            self.is_ended = True
            self.let_go()

    def stop(self) -> None:
        """The process ends. On the event loop of the call."""
        self.is_stopped = True
        self.let_go()

    def has_let_go(self) -> bool:
        """Whether it was us who cancelled; then the task may end as if nothing had happened."""
        if self._let_go and self._task is not None:
            self._task.uncancel()
        return self._let_go

    def close(self) -> None:
        _drained.discard(self)
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
