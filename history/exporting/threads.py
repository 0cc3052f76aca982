"""Async stream from a generator that queries the database in one thread.

Django would read a plain generator to its end before the first byte leaves. Here each step runs in the thread
when the client is ready for it. When the client disconnects, the generator is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from django.db import connections


async def stream_from_thread(pieces: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
    context = copy_context()  # among others, the language of the user
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
