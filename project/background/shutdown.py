"""Graceful end on SIGTERM and SIGINT: live work ends before the server closes its sockets.

Uvicorn, Daphne and Granian close every socket as soon as the signal comes, and tell the application afterwards: an
answer that is being written could not tell its clients that it ended. So the server's own signal handler is called only
when our live work has ended. A second signal is passed on at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_tasks: set[asyncio.Task[None]] = set()


def end_before_the_server(end: Callable[[], Awaitable[None]], *, loop: asyncio.AbstractEventLoop | None) -> None:
    """Put `end` before the server's own signal handlers. Outside the main thread, or without a loop, do nothing."""
    if loop is None or threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        if server := _server_handler(loop, number):
            signal.signal(number, _Handler(loop, end, server))


def _server_handler(loop: Any, number: int) -> Callable[[int, Any], None] | None:
    """What the server does at this signal. None: nothing of its own."""
    # Granian lets the loop handle signals; asyncio keeps these handlers to itself.
    handle = getattr(loop, "_signal_handlers", {}).get(number)
    if handle is not None:
        loop.remove_signal_handler(number)
        return lambda *_: handle._run()
    handler = signal.getsignal(number)
    return handler if callable(handler) and handler is not signal.default_int_handler else None


class _Handler:
    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[], Awaitable[None]], server: Any) -> None:
        self.loop, self.end, self.server = loop, end, server
        self.is_ending = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.is_ending or self.loop.is_closed():
            self.server(number, frame)
            return
        self.is_ending = True
        self.loop.call_soon_threadsafe(self._begin, number)

    def _begin(self, number: int) -> None:
        task = self.loop.create_task(self._end(number))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _end(self, number: int) -> None:
        try:
            await self.end()
        except Exception:
            logger.exception("Live work did not end in good order.")
        finally:
            self.server(number, None)
