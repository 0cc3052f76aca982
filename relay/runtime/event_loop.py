"""Helpers for code on the event loop: parsing of large input in threads, tasks, deadlines, one object per loop.

Input of clients, providers and models is never parsed in the event loop if it is larger than 64 KB: every parser is
called through `parse_apart`, or, if it is fed piece by piece, through a `StreamParser`.
"""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

_tasks: set[asyncio.Task[Any]] = set()
LARGE = 64 * 1024  # larger input is parsed in a thread


def start_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that is not lost: an event loop has only weak references to its tasks."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def parse_apart(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    if size > LARGE:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


class StreamParser(Generic[T]):
    """A parser that is fed chunks. It holds back what is incomplete, because an event of megabytes has many chunks."""

    def __init__(self, feed: Callable[[bytes], list[T]]) -> None:
        self._feed = feed
        self._held = 0

    async def feed(self, chunk: bytes) -> list[T]:
        found = await parse_apart(self._held + len(chunk), self._feed, chunk)
        # What completed nothing is parsed with what follows it, and so may be the end of what completed something.
        self._held = len(chunk) + (0 if found else self._held)
        return found

    async def close(self, close: Callable[[], list[T]]) -> list[T]:
        return await parse_apart(self._held, close)


class PerLoop(Generic[T]):
    """One object per event loop, dropped with it. It must not refer to its loop, which would then never be freed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._all: WeakKeyDictionary[AbstractEventLoop, T] = WeakKeyDictionary()

    def of(self, loop: AbstractEventLoop) -> T:
        found = self._all.get(loop)
        if found is None:
            found = self._all[loop] = self._make()
        return found

    def pop(self, loop: AbstractEventLoop) -> T | None:
        return self._all.pop(loop, None)


class Deadlines:
    """One timer checks all callbacks of a loop: nearly all are dropped before, and a timer each would cost more."""

    def __init__(self, every: float) -> None:
        self.every = every
        self.waiting: dict[object, tuple[float, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, owner: object, due: float, callback: Callable[[], object]) -> None:
        self.waiting[owner] = (due, callback)
        if self._timer is None:
            self._schedule()

    def discard(self, owner: object) -> bool:
        """False if its callback has been called."""
        return self.waiting.pop(owner, None) is not None

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.every, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for owner, (due, callback) in list(self.waiting.items()):
            if due <= now:
                del self.waiting[owner]
                callback()
        self._timer = None
        if self.waiting:
            self._schedule()
