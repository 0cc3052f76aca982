"""Scheduling of import jobs: small imports do not wait for large ones.

One thread runs the waiting jobs of this process: one job of each user at a time, some of them together, each for a
second before the next continues. One UPDATE decides who runs a job. Writing the progress is the heartbeat of the jobs.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from uuid import UUID, uuid4

from django.utils import timezone
from django.utils.translation import gettext_noop

from history import importing
from history.entries import JsonDict
from history.errors import HistoryError
from history.formats.reports import ImportItem, ImportOutcome
from history.importing.jobs import folder_of
from history.models import ImportJob
from history.record import writer

logger = logging.getLogger(__name__)

TURN = 1.0
TOGETHER = 8
KEPT_ITEMS = 1_000
KEPT_REFUSALS = 2_000
WRITE_EVERY = 1.0

WENT_WRONG = gettext_noop("Something went wrong. The server log has the details.")


def work() -> None:
    """Run the waiting jobs whose files are here, until there are none. The background work calls it once a second."""
    runner, running = uuid4(), deque[_RunningJob]()
    while _start_waiting(running, runner):
        if running[0].run_turn(until=time.monotonic() + TURN):
            running.rotate(-1)
        else:
            running.popleft()


def _start_waiting(running: deque[_RunningJob], runner: UUID) -> int:
    """Start jobs of users without a running one first. Returns the number of running jobs."""
    busy = {one.job.owner_id for one in running}
    waiting = ImportJob.objects.filter(state=ImportJob.State.WAITING).exclude(owner__in=busy).order_by("created_at")
    for job in waiting[:20] if len(running) < TOGETHER else ():
        if job.owner_id in busy or len(running) >= TOGETHER or not folder_of(job).is_dir():
            continue
        row = ImportJob.objects.filter(pk=job.pk, state=ImportJob.State.WAITING)
        if row.update(state=ImportJob.State.RUNNING, claim=runner, heartbeat_at=timezone.now()):
            running.appendleft(_RunningJob(job, runner))
            busy.add(job.owner_id)
    return len(running)


class _RunningJob:
    """A job with its progress, which is written about once a second."""

    def __init__(self, job: ImportJob, runner: UUID) -> None:
        self.job = job
        self.claimed = ImportJob.objects.filter(claim=runner, state=ImportJob.State.RUNNING)
        self.recording = job.api_key.recording if job.api_key else "full"
        self.items: list[JsonDict] = []
        self.bytes = 0
        self.written = time.monotonic()
        folder = folder_of(job)
        pieces = [importing.uploaded(folder / str(place), name=file["name"]) for place, file in enumerate(job.files)]
        self.import_ = importing.Import(job.owner, on_bytes=self._add_bytes, api_key=job.api_key)
        self.steps = self.import_.steps(pieces)

    def run_turn(self, *, until: float) -> bool:
        """False when the job has ended, with or without an error."""
        try:
            for item in self.steps:
                if item is not None:
                    self._add_item(item)
                if time.monotonic() >= until:
                    return True
        except HistoryError as error:
            self._end(ImportJob.State.FAILED, error=str(error))
        except Exception:
            logger.exception("An import failed.")
            self._end(ImportJob.State.FAILED, error=WENT_WRONG)
        else:
            self._end(ImportJob.State.DONE)
            shutil.rmtree(folder_of(self.job), ignore_errors=True)
        return False

    def _add_item(self, item: ImportItem) -> None:
        limit = KEPT_REFUSALS if item.outcome in (ImportOutcome.REFUSED, ImportOutcome.NOTED) else KEPT_ITEMS
        if len(self.items) < limit:
            # Notes and reasons quote names of files, titles and values of the import.
            fields = writer.kept_fields({"item": item.as_stored_json()}, recording=self.recording)
            self.items.append(fields["item"])
        self._write_sometimes()

    def _add_bytes(self, size: int) -> None:
        self.bytes += size
        self._write_sometimes()

    def _write_sometimes(self) -> None:
        if time.monotonic() - self.written >= WRITE_EVERY:
            self._write()
            self.claimed.update(heartbeat_at=timezone.now())
            time.sleep(0.001)  # let other threads of the process run

    def _write(self, **fields: object) -> None:
        row = self.claimed.filter(pk=self.job.pk)
        row.update(bytes_read=self.bytes, counts=self.import_.report.as_json(), items=self.items, **fields)
        self.written = time.monotonic()

    def _end(self, state: str, *, error: str = "") -> None:
        now = timezone.now()
        self._write(state=state, error=error, heartbeat_at=now, ended_at=now)
