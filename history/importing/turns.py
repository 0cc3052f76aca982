"""Scheduling of import jobs: small imports do not wait for large ones.

One thread runs what waits in this process: one job of each person at a time, some of them together, each for a second
before the next goes on. A turn ends between two conversations, or between two batches of a long one. One UPDATE
decides who runs a job; how far it is, is written down about once a second, and that is the sign of life of all that are
under way.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone
from django.utils.translation import gettext_noop

from history import importing
from history.errors import HistoryError
from history.importing.jobs import folder_of, tidy
from history.importing.reports import ImportItem, ImportOutcome, ImportReport
from history.models import ImportJob
from history.record import writer

logger = logging.getLogger(__name__)

TURN = 1.0
TOGETHER = 8
KEPT_ITEMS = 1_000
KEPT_REFUSALS = 2_000
WRITE_EVERY = 1.0
TIDY_EVERY = timedelta(hours=1)

WENT_WRONG = gettext_noop("Something went wrong here; the log of the server has more.")

_tidied = timezone.now() - TIDY_EVERY


def work() -> None:
    """Run what waits and whose files are here, until nothing does. Called by the background work, once a second."""
    global _tidied
    runner, going = uuid4(), deque[_Going]()
    while _take_up(going, runner):
        if going[0].go_on(until=time.monotonic() + TURN):
            going.rotate(-1)
        else:
            going.popleft()
    if timezone.now() - _tidied > TIDY_EVERY:
        _tidied = timezone.now()
        tidy()


def _take_up(going: deque[_Going], runner: UUID) -> int:
    """Start jobs of users without a running one first. Returns the number of running jobs."""
    busy = {one.job.owner_id for one in going}
    waiting = ImportJob.objects.filter(state=ImportJob.State.WAITING).exclude(owner__in=busy).order_by("created_at")
    for job in waiting[:20] if len(going) < TOGETHER else ():
        is_next = job.owner_id not in busy and len(going) < TOGETHER
        if is_next and folder_of(job).is_dir() and _claim(job, runner):
            going.appendleft(_Going(job, runner))
            busy.add(job.owner_id)
    return len(going)


def _claim(job: ImportJob, runner: UUID) -> bool:
    waiting = ImportJob.objects.filter(pk=job.pk, state=ImportJob.State.WAITING)
    return bool(waiting.update(state=ImportJob.State.RUNNING, claim=runner, heartbeat_at=timezone.now()))


class _Going:
    """One job that is under way."""

    def __init__(self, job: ImportJob, runner: UUID) -> None:
        self.job = job
        self.diary = _Diary(job, runner)
        folder = folder_of(job)
        pieces = [importing.uploaded(folder / str(place), name=file["name"]) for place, file in enumerate(job.files)]
        self.steps = importing.steps(job.owner, pieces, on_bytes=self.diary.count, api_key=job.api_key)

    def go_on(self, *, until: float) -> bool:
        """False when it is over, one way or the other."""
        try:
            for item in self.steps:
                if item is not None:
                    self.diary.note(item)
                if time.monotonic() >= until:
                    return True
        except HistoryError as error:
            self.diary.end(ImportJob.State.FAILED, error=str(error))
        except Exception:
            logger.exception("An import failed.")
            self.diary.end(ImportJob.State.FAILED, error=WENT_WRONG)
        else:
            self.diary.end(ImportJob.State.DONE)
            shutil.rmtree(folder_of(self.job), ignore_errors=True)
        return False


class _Diary:
    """How far a job is, written down about once a second."""

    def __init__(self, job: ImportJob, runner: UUID) -> None:
        self.mine = ImportJob.objects.filter(claim=runner, state=ImportJob.State.RUNNING)
        self.row = self.mine.filter(pk=job.pk)
        self.recording = job.api_key.recording if job.api_key else "full"
        self.report = ImportReport()
        self.items: list[dict[str, Any]] = []
        self.bytes = 0
        self.written = time.monotonic()

    def note(self, item: ImportItem) -> None:
        self.report.add(item)
        limit = KEPT_REFUSALS if item.outcome in (ImportOutcome.REFUSED, ImportOutcome.NOTED) else KEPT_ITEMS
        if len(self.items) < limit:
            # Notes and reasons quote names of files, titles and values of the import.
            kept = writer.kept_fields({"item": item.as_kept()}, recording=self.recording)
            self.items.append(kept["item"])
        self._now_and_then()

    def count(self, size: int) -> None:
        self.bytes += size
        self._now_and_then()

    def _now_and_then(self) -> None:
        if time.monotonic() - self.written >= WRITE_EVERY:
            self._write()
            self.mine.update(heartbeat_at=timezone.now())
            time.sleep(0.001)  # the process has others to serve

    def _write(self, **fields: Any) -> None:
        self.row.update(bytes_read=self.bytes, counts=self.report.as_json(), items=self.items, **fields)
        self.written = time.monotonic()

    def end(self, state: str, *, error: str = "") -> None:
        now = timezone.now()
        self._write(state=state, error=error, heartbeat_at=now, ended_at=now)
