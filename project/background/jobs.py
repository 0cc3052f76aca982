"""The work that goes on beside requests, in threads of the web process or in `manage.py work`.

Daphne has no lifespan and the others have no atexit, so `ensure_started` is called by Daphne's reactor when it runs, by
lifespan where there is one, and by the first ASGI scope of any kind; it checks the process id, because a server may
fork after importing us. The end comes the same way: lifespan's shutdown, Daphne's `before shutdown` trigger, or atexit,
and `stop` may be called by all of them. Each job has a thread of its own, so a purge of minutes does not hold up the
flush four times a second; a job that must run once in the whole installation runs where its lease is held.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from django.conf import settings
from django.db import connections
from django.utils.module_loading import import_string

from history.db.large_values import release_large_values
from project.background.leases import Held, name_of_process
from project.background.shutdown import end_before_the_server
from relay.consumers import sockets
from relay.gateway import recording
from relay.gateway.call import stopping
from relay.gateway.limits import redis_limits
from relay.live import runs
from relay.providers.registry import close_all
from relay.tools.mcp import connections as mcp_servers

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0
# A job that runs so often keeps its connection to the database: to make one each time would cost more than the work.
OFTEN_SECONDS = 1.0
LEASE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """`run` is a dotted path, so that the apps need not know of us. `at_end`: once more before the process ends.

    Which process of a host does a job that is needed once per host, that job finds out. `stop` ends what it began.
    """

    name: str
    run: str
    every: float
    once_per: Literal["process", "host", "installation"]
    at_end: bool = False
    stop: str = ""


JOBS: list[Job] = [
    Job(
        name="flush partial answers",
        run="history.record.exchanges.flush_partials",
        every=0.25,
        once_per="process",
        at_end=True,
    ),
    Job(name="sweep dead exchanges", run="history.record.exchanges.sweep", every=5, once_per="installation"),
    Job(name="look after runs", run="relay.live.runs.send_heartbeats", every=1, once_per="process"),
    Job(
        name="look for what other processes do",
        run="relay.live.relayed_updates.refresh_open_sessions",
        every=1,
        once_per="process",
    ),
    Job(
        name="look for what was relayed",
        run="relay.live.relayed_updates.refresh_session_lists",
        every=0.5,
        once_per="process",
    ),
    Job(name="look who has signed out", run="relay.live.sign_outs.notify_ended_sign_ins", every=2, once_per="process"),
    Job(
        name="end runs of dead processes",
        run="relay.live.sweeper.end_runs_of_dead_processes",
        every=5,
        once_per="process",
        stop="relay.runtime.process_locks.forget",
    ),
    Job(name="sweep dead runs", run="relay.live.sweeper.sweep", every=5, once_per="installation"),
    Job(name="purge what is due", run="history.retention.purge_due", every=3600, once_per="installation"),
    Job(name="check the counts by day", run="history.record.daily_check.check", every=3600, once_per="installation"),
    Job(name="run imports", run="history.importing.turns.work", every=1, once_per="process"),
    Job(
        name="count what keys use",
        run="relay.gateway.limits.usage_counters.sync",
        every=0.4,
        once_per="process",
        at_end=True,
    ),
    Job(
        name="end calls of revoked keys",
        run="relay.gateway.call.revocations.end_revoked",
        every=0.5,
        once_per="process",
    ),
    Job(
        name="note issued answers",
        run="relay.gateway.references.ownership.write_issued",
        every=1,
        once_per="process",
        at_end=True,
    ),
    Job(name="tidy counts of keys", run="relay.gateway.limits.usage_store.tidy", every=300, once_per="installation"),
    Job(
        name="say how this process fares",
        run="relay.gateway.process_stats.write",
        every=2,
        once_per="process",
        stop="relay.gateway.process_stats.stop",
    ),
    Job(
        name="digest the relay's journal",
        run="relay.digest.process.look_after",
        every=0.1,
        once_per="host",
        stop="relay.digest.process.stop",
    ),
    Job(name="list models", run="relay.providers.registry.refresh", every=300, once_per="process"),
]


class Crew:
    """The threads of one process."""

    def __init__(self, jobs: Iterable[Job], *, lease_seconds: float) -> None:
        self.jobs = list(jobs)
        self.held = Held(holder=name_of_process(), seconds=lease_seconds)
        self.border = Border()
        self.stopping = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        if any(job.once_per == "installation" for job in self.jobs):
            self._start_thread(self._keep_leases, "leases")
        for job in self.jobs:
            self._start_thread(partial(self._repeat, job), job.name)

    def _start_thread(self, target: Callable[[], None], name: str) -> None:
        # Daemons, because a job that hangs must not keep the process alive; `stop` gives the others time to finish.
        thread = threading.Thread(target=target, name=f"background: {name}", daemon=True)
        thread.start()
        self.threads.append(thread)

    def stop(self) -> None:
        self.stopping.set()
        end = time.monotonic() + STOP_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        for job in self.jobs:
            if job.at_end:
                self._run(job)
            if job.stop:
                self.border.run(import_string(job.stop), name=f"stop to {job.name}")
        self.border.run(self.held.give_back, name="give the leases back")
        still_running = [thread.name for thread in self.threads if thread.is_alive()]
        if still_running:
            logger.warning("Ended without waiting for: %s", ", ".join(still_running))

    def _keep_leases(self) -> None:
        names = [job.name for job in self.jobs if job.once_per == "installation"]
        while True:
            for name in names:
                self.border.run(partial(self.held.renew, name), name=f"renew the lease of {name}")
            if self.stopping.wait(self.held.seconds / 3):
                return

    def _repeat(self, job: Job) -> None:
        """Run as soon as it is due. A lease may come to us at any time, so look for it about once a second."""
        due = time.monotonic()
        while not self.stopping.is_set():
            wait = due - time.monotonic()
            if wait <= 0 and self._is_ours(job):
                self._run(job)
                due = max(due + job.every, time.monotonic())
            else:
                self.stopping.wait(min(max(wait, 0.05), 1.0) if job.once_per == "installation" else wait)
        connections.close_all()

    def _run(self, job: Job) -> None:
        keeps = job.every <= OFTEN_SECONDS and not self.stopping.is_set()
        self.border.run(lambda: import_string(job.run)(), name=job.name, keeps_connection=keeps)

    def _is_ours(self, job: Job) -> bool:
        return job.once_per != "installation" or job.name in self.held


class Border:
    """Between our threads and whatever they run: an error is logged when it first comes and when it is over.

    A job that fails four times a second would otherwise fill the disk with one and the same traceback.
    """

    def __init__(self) -> None:
        self.failing: dict[str, str] = {}

    def run(self, work: Callable[[], object], *, name: str, keeps_connection: bool = False) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the thread must live on; the traceback is in the log
            keeps_connection = False
            self._note_failure(name, error)
        else:
            if self.failing.pop(name, None):
                logger.info("“%s” works again.", name)
        finally:
            if not keeps_connection:
                connections.close_all()
            release_large_values()

    def _note_failure(self, name: str, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        if self.failing.get(name) != what:
            self.failing[name] = what
            logger.error("“%s” failed and is tried again each time.", name, exc_info=error)


# The crew of this process

_lock = threading.Lock()
_crew: Crew | None = None
_pid = 0


def ensure_started() -> None:
    """Cheap when it has started already, so it may be called for every request.

    What must run where answers are written runs in every web process, even where the rest is left to `manage.py work`.
    """
    if _pid == os.getpid():
        return
    with _lock:
        if _pid != os.getpid():
            _start()


def _start() -> None:
    global _crew, _pid
    ours = [job for job in JOBS if settings.PARLEY_BACKGROUND or job.once_per == "process"]
    _crew, _pid = Crew(ours, lease_seconds=LEASE_SECONDS), os.getpid()
    atexit.register(stop)
    stopping.begin_anew()
    _stop_with_daphne()
    end_before_the_server(end_live_work, loop=_running_loop())
    _crew.start()


def stop() -> None:
    """End the threads in good order; a second call finds nothing to do."""
    global _crew, _pid
    with _lock:
        crew, _crew, pid, _pid = _crew, None, _pid, 0
    if crew is not None and pid == os.getpid():
        crew.stop()
        logger.info("Background work has ended.")


async def drain() -> None:
    """`stop` for an event loop, which goes on meanwhile: a job may be waiting for something that it serves.

    Answers on their way end first, so that what there is of them is written by the jobs that are still there. After it
    no call to a model goes on, the processes of the demo model and of MCP servers are gone, and the relay's journal is
    left to its readers.
    """
    await end_live_work()
    await asyncio.to_thread(stop)
    await asyncio.to_thread(mcp_servers.close)
    await close_all()
    await redis_limits.close()
    recording.begin_anew()


async def end_live_work() -> None:
    """End the answers that are being written, tell their clients, and close the sockets. A second call does nothing.

    Relayed calls cannot be continued by their clients, so they get time to end.
    """
    stopping.refuse_new_calls()
    await runs.stop_all()
    await sockets.close_all()
    await stopping.let_calls_end(settings.PARLEY_RELAY_STOP_SECONDS)


def start_with_daphne() -> None:
    """Without lifespan the first call would have to start it, and be recorded a second later than the others."""
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None:
        reactor.callWhenRunning(ensure_started)


def _stop_with_daphne() -> None:
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None and reactor.running:
        reactor.addSystemEventTrigger("before", "shutdown", _drain_under_twisted)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the server. Daphne's runs a moment after the reactor has started."""
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None and reactor.running:
        return getattr(reactor, "_asyncioEventloop", None)
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _drain_under_twisted() -> object:
    """Daphne dies of signal 11 when tasks are left over at the end, as those of open sockets are: end them first."""
    from twisted.internet.defer import Deferred

    return Deferred.fromFuture(asyncio.ensure_future(_drain_and_cancel()))


async def _drain_and_cancel() -> None:
    await drain()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait(others, timeout=2) if others else None
