"""A generator that asks the database, for the event loop: one thread and one connection as long as it lasts.

Django would read a plain generator to its end before the first byte leaves. Here every step is taken in the thread when
somebody is ready for it, and whoever stops asking (a client that went away) ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from django.db import connections


async def in_a_thread(pieces: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
    context = copy_context()  # the language of whoever asked, for one
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(max_workers=1, thread_name_prefix="export")
    try:
        while (piece := await loop.run_in_executor(pool, lambda: context.run(_next, pieces))) is not None:
            yield piece
    finally:
        # Behind the step that may still be running.
        pool.submit(_close, pieces)
        pool.shutdown(wait=False)


def _next(pieces: Generator[bytes, None, None]) -> bytes | None:
    return next(pieces, None)


def _close(pieces: Generator[bytes, None, None]) -> None:
    try:
        pieces.close()
    finally:
        connections.close_all()
