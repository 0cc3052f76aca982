"""Threads for tools that are ordinary functions.

A thread cannot be stopped from outside: a tool that hangs goes on after its time is up. In a pool it would keep a place
from everybody else for ever, and the process from ending; a daemon thread of its own does neither.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What the function returns or raises. Cancelling stops the waiting, not the thread."""
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_OneThreadEach(), call)


class _OneThreadEach(Executor):
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        work = partial(_carry_out, future, partial(fn, *args, **kwargs))
        threading.Thread(target=work, name="tool", daemon=True).start()
        return future


def _carry_out(future: Future[T], call: Callable[[], T]) -> None:
    try:
        result = _with_connections_of_its_own(call)
    except StopIteration as error:  # no future takes one: whoever waits would wait for ever
        future.set_exception(RuntimeError(f"StopIteration: {error}").with_traceback(error.__traceback__))
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


def _with_connections_of_its_own(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        connections.close_all()
