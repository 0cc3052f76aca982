"""The rule for foreign input: more than 64 KB of it is not parsed in the event loop.

Every parser of what clients, providers and models send is called through `parse_apart`, or, where it is fed piece by
piece, through a `StreamParser`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

# Parsing more than this happens in a thread: the event loop serves other callers meanwhile.
LARGE = 64 * 1024

P = ParamSpec("P")
T = TypeVar("T")


async def parse_apart(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a parser: at once for a small input, in a thread for one of more than 64 KB."""
    if size > LARGE:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


class StreamParser(Generic[T]):
    """A parser that is fed chunks and holds back what is not complete: an event of megabytes comes in many chunks."""

    def __init__(self, feed: Callable[[bytes], list[T]]) -> None:
        self._feed = feed
        self._held = 0

    async def feed(self, chunk: bytes) -> list[T]:
        found = await parse_apart(self._held + len(chunk), self._feed, chunk)
        # What completed nothing is parsed with what follows it.
        self._held = 0 if found else self._held + len(chunk)
        return found

    async def close(self, close: Callable[[], list[T]]) -> list[T]:
        return await parse_apart(self._held, close)
