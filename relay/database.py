"""The record from the event loop: a few threads of our own, whose connections stay open between calls.

Django's own way, one thread for everything that is "thread sensitive", would let a page that is rendered hold up every
running answer, and a connection for each call would cost more than most calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection, connections

THREADS = 4

P = ParamSpec("P")
T = TypeVar("T")

_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="relay database")


async def in_database(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that asks the database, and wait for it without holding up the loop."""
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(_connected, partial(work, *args, **kwargs)))


def begin_in_database(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
    """The same, but nobody waits for it: `work` has to see to its own errors."""
    _pool.submit(partial(_connected, partial(work, *args, **kwargs)))


def _connected(work: Callable[[], T]) -> T:
    connection.close_if_unusable_or_obsolete()
    try:
        return work()
    finally:
        connection.close_at = None  # these threads stay, and so may their connections


def close_connections() -> None:
    """Let go of the database, for instance because a test is about to drop it."""
    together = threading.Barrier(THREADS)

    def close() -> None:
        together.wait(10)
        connections.close_all()

    for done in [_pool.submit(close) for _ in range(THREADS)]:
        done.result(10)
