"""One of something for each event loop. A server has one loop; tests and commands have many, one after the other."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Made when it is first asked for, gone with its loop. The one that was asked for last is at hand.

    What is made must not hold its loop, which would then never go.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._all: WeakKeyDictionary[AbstractEventLoop, T] = WeakKeyDictionary()
        self._last: tuple[AbstractEventLoop, T] | None = None

    def of(self, loop: AbstractEventLoop) -> T:
        last = self._last
        if last is not None and last[0] is loop:
            return last[1]
        found = self._all.get(loop)
        if found is None:
            found = self._all[loop] = self._make()
        self._last = (loop, found)
        return found

    def pop(self, loop: AbstractEventLoop) -> T | None:
        self._last = None
        return self._all.pop(loop, None)
