"""Scheduler of background jobs: one thread keeps the time, as many threads work as jobs run at once.

A purge of minutes does not delay a flush that is due four times a second. A job never runs twice at the same time.
Leases decide which process does a job that runs once per installation. One UPDATE takes or renews a lease, and its row
count says who won. The database's clock is the only clock.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from queue import SimpleQueue

from django.db import connections
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from history.db.parameters import release_large_values
from project.background.jobs import Job
from project.models import Lease


class Leases:
    """The leases of this process, as far as it knows without a query: each until it runs out."""

    def __init__(self, *, holder: str, seconds: float) -> None:
        self.holder, self.seconds = holder, seconds
        self._until: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return time.monotonic() < self._until.get(name, 0.0)

    def renew(self, name: str) -> None:
        # Counted from before the query, so that this process lets go a little early rather than a little late.
        start = time.monotonic()
        if self._take(name):
            self._until[name] = start + self.seconds
        else:
            self._until.pop(name, None)

    def _take(self, name: str) -> bool:
        """False if another holder has it."""
        if self._claim(name):
            return True
        if Lease.objects.filter(name=name).exists():
            return False
        Lease.objects.bulk_create([Lease(name=name, holder="", expires_at=Now())], ignore_conflicts=True)
        return self._claim(name)

    def _claim(self, name: str) -> bool:
        claimable = Lease.objects.filter(Q(holder=self.holder) | Q(expires_at__lte=Now()), name=name)
        return claimable.update(holder=self.holder, expires_at=Now() + timedelta(seconds=self.seconds)) == 1

    def release(self) -> None:
        """Let other processes continue at once instead of waiting until the leases expire."""
        if self._until:
            self._until.clear()
            Lease.objects.filter(holder=self.holder).update(expires_at=Now())


logger = logging.getLogger(__name__)
STOP_SECONDS = 5.0
# A job that runs this often keeps its connection to the database: a new one each time costs more than the work.
OFTEN_SECONDS = 1.0
LEASE_POLL_SECONDS = 1.0  # how soon a job notices that this process got its lease
RETRY_SECONDS = 1.0  # how soon a job is tried again for which the system had no thread


class Scheduler:
    def __init__(self, jobs: Iterable[Job], *, lease_seconds: float) -> None:
        self.jobs = list(jobs)
        name = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(4)}"
        self.leases = Leases(holder=name, seconds=lease_seconds)
        self.failures = FailureLog()
        self.is_stopping = False
        self._changed = threading.Condition()
        self._functions: dict[str, Callable[[], object]] = {}
        self._due: dict[str, float] = {}  # of jobs that are not running
        self._running: set[str] = set()
        self._queue: SimpleQueue[tuple[Job, float] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []

    def start(self) -> None:
        # Daemons, because a job that hangs must not keep the process alive. `stop` gives the others time to finish.
        threading.Thread(target=self._keep_time, name="background", daemon=True).start()

    def stop(self) -> None:
        end = time.monotonic() + STOP_SECONDS
        with self._changed:
            self.is_stopping = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running, STOP_SECONDS)
            late = sorted(self._running)
        for _ in self._workers:
            self._queue.put(None)
        for worker in self._workers:
            worker.join(max(0.0, end - time.monotonic()))
        for job in self.jobs:
            if job.at_end:
                self.failures.watch(import_string(job.run), name=job.name)
            if job.stop:
                self.failures.watch(import_string(job.stop), name=f"stop of {job.name}")
        self.failures.watch(self.leases.release, name="release leases")
        if late:
            logger.warning("Ended without waiting for: %s", ", ".join(late))

    def _keep_time(self) -> None:
        jobs = {job.name: job for job in self.jobs}
        self._functions = {job.name: import_string(job.run) for job in self.jobs}
        if leased := [job.name for job in self.jobs if job.once_per == "installation"]:
            renewal = Job("renew leases", "", every=self.leases.seconds / 3)
            jobs = {renewal.name: renewal} | jobs
            self._functions[renewal.name] = partial(self._renew, leased)
        with self._changed:
            self._due = dict.fromkeys(jobs, time.monotonic())
            while not self.is_stopping:
                now = time.monotonic()
                for name in [name for name, due in self._due.items() if due <= now]:
                    if jobs[name].once_per == "installation" and name not in self.leases:
                        self._due[name] = now + LEASE_POLL_SECONDS
                    else:
                        begin = partial(self._begin, jobs[name], due=self._due.pop(name))
                        self.failures.watch(begin, name=f"thread of {name}", keeps_connection=True)
                        if name not in self._running:
                            self._due[name] = now + RETRY_SECONDS
                self._changed.wait(min(self._due.values()) - now if self._due else None)

    def _renew(self, names: list[str]) -> None:
        for name in names:
            self.failures.watch(partial(self.leases.renew, name), name=f"lease of {name}")

    def _begin(self, job: Job, *, due: float) -> None:
        if len(self._running) == len(self._workers):
            worker = threading.Thread(target=self._work, name=f"background {len(self._workers) + 1}", daemon=True)
            worker.start()  # fails while the system has no thread left
            self._workers.append(worker)
        self._running.add(job.name)
        self._queue.put((job, due))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            job, due = item
            keeps = job.every <= OFTEN_SECONDS and not self.is_stopping
            self.failures.watch(self._functions[job.name], name=job.name, keeps_connection=keeps)
            with self._changed:
                self._running.discard(job.name)
                self._due[job.name] = max(due + job.every, time.monotonic())
                self._changed.notify_all()
        connections.close_all()


class FailureLog:
    """Logs the error of a job when it comes, changes and is over: else one traceback could fill the disk."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    def watch(self, work: Callable[[], object], *, name: str, keeps_connection: bool = False) -> None:
        try:
            work()
        except Exception as error:
            keeps_connection = False
            text = f"{type(error).__name__}: {error}"
            if self._failing.get(name) != text:
                self._failing[name] = text
                logger.exception("Job “%s” failed and will be retried.", name)
        else:
            if self._failing.pop(name, None):
                logger.info("Job “%s” works again.", name)
        finally:
            if not keeps_connection:
                connections.close_all()
            release_large_values()
