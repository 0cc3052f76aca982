"""Start and end of the background work under every server.

Daphne has no lifespan and the other servers have no exit hook. So it starts with Daphne's reactor, by lifespan or by
the first ASGI scope of any kind (a server may fork after the import), and ends in the same ways or at exit.
All servers close every socket at SIGTERM before they notify the application. So that a running answer can send its end,
the signal handler of the server is called after the live work has ended.
"""

import asyncio
import atexit
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from django.conf import settings

from project.background import jobs
from project.background.scheduler import Scheduler
from relay.consumers import sockets
from relay.gateway import recording
from relay.gateway.call import cancellation
from relay.live import runs
from relay.providers.registry import close_all
from relay.tools.mcp import connections as mcp_servers
from relay.usage import redis_counters

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_scheduler: Scheduler | None = None
_pid = 0


def ensure_started() -> None:
    """Start the background work unless this process has started it. Cheap enough for every request."""
    if _pid == os.getpid():
        return
    with _lock:
        if _pid != os.getpid():
            _start()


def _start() -> None:
    global _scheduler, _pid
    # Jobs of the process run where answers are written, even where `manage.py work` runs the others.
    ours = [job for job in jobs.JOBS if settings.PARLEY_BACKGROUND or job.once_per == "process"]
    _scheduler, _pid = Scheduler(ours, lease_seconds=jobs.LEASE_SECONDS), os.getpid()
    _tune_interpreter()
    atexit.register(stop)
    cancellation.accept_new_calls()
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None and reactor.running:
        reactor.addSystemEventTrigger("before", "shutdown", _drain_under_twisted)
        # Daphne's loop runs a moment after the reactor has started.
        end_before_the_server(end_live_work, loop=getattr(reactor, "_asyncioEventloop", None))
    else:
        with suppress(RuntimeError):
            end_before_the_server(end_live_work, loop=asyncio.get_running_loop())
    _scheduler.start()


def stop() -> None:
    """End the jobs in good order. A second call does nothing."""
    global _scheduler, _pid
    with _lock:
        scheduler, _scheduler, pid, _pid = _scheduler, None, _pid, 0
    if scheduler is not None and pid == os.getpid():
        scheduler.stop()
        logger.info("Background work has ended.")


async def drain() -> None:
    """`stop` from an event loop that must go on: jobs may wait for it. Answers end first, so that jobs write them."""
    await end_live_work()
    await asyncio.to_thread(stop)
    await asyncio.to_thread(mcp_servers.close)
    await close_all()
    await redis_counters.close()
    recording.close_journal()


async def end_live_work() -> None:
    """End the answers that are being written, tell their clients and close the sockets. Relayed calls get time."""
    cancellation.refuse_new_calls()
    await runs.stop_all()
    await sockets.close_all()
    await cancellation.finish_calls(settings.PARLEY_RELAY_STOP_SECONDS)


def prepare_daphne() -> None:
    """Start with Daphne's reactor, and keep the limits of requests under the `daphne` command too.

    Else the first relayed call would start the background work, and would be recorded a second later than others.
    """
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None:
        reactor.callWhenRunning(ensure_started)
    if "daphne.cli" in sys.modules:
        from daphne.cli import CommandLineInterface

        from project.server.daphne import Server

        CommandLineInterface.server_class = Server


def _tune_interpreter() -> None:
    """Short turns for threads, and no garbage collection of what is loaded for good (docs/internals/performance.md).

    Database threads run beside the event loop: with Python's five milliseconds a stream stutters while one computes.
    """
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    gc.set_threshold(3_000, 5, 5)


def _drain_under_twisted() -> object:
    """Daphne dies of signal 11 when tasks are left over at the end, as those of open sockets are: end them first."""
    from twisted.internet.defer import Deferred

    return Deferred.fromFuture(asyncio.ensure_future(_drain_and_cancel()))


async def _drain_and_cancel() -> None:
    await drain()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=2)


_endings: list[Future[None]] = []


def end_before_the_server(end: Callable[[], Awaitable[None]], *, loop: asyncio.AbstractEventLoop | None) -> None:
    """Put `end` before the server's own signal handlers. Outside the main thread, or without a loop, do nothing."""
    if loop is None or threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        if server := _server_handler(loop, number):
            signal.signal(number, _handler_before(server, end, loop))


def _server_handler(loop: Any, number: int) -> Callable[[int, Any], None] | None:
    # Granian lets the loop handle signals; asyncio keeps these handlers to itself.
    handle = getattr(loop, "_signal_handlers", {}).get(number)
    if handle is not None:
        loop.remove_signal_handler(number)
        return lambda *_: handle._run()
    handler = signal.getsignal(number)
    return handler if callable(handler) and handler is not signal.default_int_handler else None


def _handler_before(
    server: Callable[[int, Any], None], end: Callable[[], Awaitable[None]], loop: asyncio.AbstractEventLoop
) -> Callable[[int, Any], None]:
    is_ending = False

    async def end_both(number: int) -> None:
        try:
            await end()
        except Exception:
            logger.exception("Live work did not end cleanly.")
        finally:
            server(number, None)

    def handle(number: int, frame: Any) -> None:
        nonlocal is_ending
        if is_ending or loop.is_closed():
            server(number, frame)
        else:
            is_ending = True
            _endings.append(asyncio.run_coroutine_threadsafe(end_both(number), loop))

    return handle
