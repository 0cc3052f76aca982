"""Imports that were asked for on a page: files in the data directory, a row that says how far it is, and a thread.

Whoever sends files gets a job at once and may close the tab: the background work of the process that has the files
takes the job (one UPDATE decides who), runs it, and writes down how far it is about once a second. A job whose runner
died shows no sign of life any more; it may be run again, because importing twice changes nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_noop

from history import importing
from history.errors import HistoryError
from history.importing.reports import Item, Outcome, Report
from history.models import ImportJob

SILENT = timedelta(minutes=2)  # after so long without a sign of life the runner is thought to be dead
KEPT_FILES = timedelta(days=7)
KEPT_REPORTS = timedelta(days=30)
KEPT_ITEMS = 1_000
KEPT_REFUSALS = 2_000
MAX_FILES = 200
UNFINISHED = 4  # times the limit of one
WRITE_EVERY = 1.0
TIDY_EVERY = timedelta(hours=1)

WENT_WRONG = gettext_noop("Something went wrong here; the log of the server has more.")

_tidied = timezone.now() - TIDY_EVERY


class TooLarge(HistoryError):
    """What was sent is more than the house takes at once."""


class TooMany(HistoryError):
    """Whoever sends this has too much lying here that is not imported yet."""


class Misplaced(HistoryError):
    """A piece of a file that does not follow what is there; `size` is how much that is."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the next piece begins at {size}")
        self.size = size


# Files come in.


def create(owner: Any, files: Sequence[tuple[str, int]]) -> ImportJob:
    """A job for files with these names and sizes, which are still to come."""
    size = sum(size for _, size in files)
    if size > limit() or len(files) > MAX_FILES:
        raise TooLarge(f"more than {settings.PARLEY_IMPORT_MB} MB, or more than {MAX_FILES} files")
    if _unfinished(owner) + size > UNFINISHED * limit():
        raise TooMany("imports that are not finished take too much room")
    named = [{"name": name.replace("\\", "/").rpartition("/")[2][:200] or "file", "size": size} for name, size in files]
    job = ImportJob.objects.create(owner=owner, files=named)
    folder_of(job).mkdir(parents=True, mode=0o700)
    return job


def _unfinished(owner: Any) -> int:
    """What this person's jobs that are not done may take, in bytes."""
    jobs = ImportJob.objects.filter(owner=owner).exclude(state=ImportJob.State.DONE)
    lying = [job for job in jobs.only("pk", "files") if folder_of(job).exists()]
    return sum(file["size"] for job in lying for file in job.files)


def limit() -> int:
    return int(settings.PARLEY_IMPORT_MB) * 1024 * 1024


def folder_of(job: ImportJob) -> Path:
    return Path(settings.PARLEY_DATA_DIR, "imports", str(job.pk))


def add_piece(job: ImportJob, *, place: int, offset: int, content: bytes) -> int:
    """Put this at the end of file `place`; returns how long that is now."""
    path, whole = folder_of(job) / str(place), job.files[place]["size"]
    size = path.stat().st_size if path.exists() else 0
    if offset != size or job.state != ImportJob.State.UPLOADING:
        raise Misplaced(size)
    if size + len(content) > whole:
        raise TooLarge("the file is longer than was said")
    with path.open("ab") as file:
        file.write(content)
    ImportJob.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now())
    return size + len(content)


def take_file(job: ImportJob, *, place: int, path: Path) -> None:
    """A file that is there as a whole; it is moved."""
    shutil.move(path, folder_of(job) / str(place))


def is_whole(job: ImportJob) -> bool:
    folder = folder_of(job)
    sizes = [(folder / str(place), file["size"]) for place, file in enumerate(job.files)]
    return all(path.exists() and path.stat().st_size == size for path, size in sizes)


def start(job: ImportJob) -> None:
    """From now on it waits for a runner."""
    job.state = ImportJob.State.WAITING
    job.claim, job.error, job.ended_at, job.bytes_read, job.counts, job.items = None, "", None, 0, {}, []
    job.heartbeat_at = timezone.now()
    job.save()


def remove(job: ImportJob) -> None:
    shutil.rmtree(folder_of(job), ignore_errors=True)
    job.delete()


def may_run_again(job: ImportJob) -> bool:
    return (is_interrupted(job) or job.state == ImportJob.State.FAILED) and is_whole(job)


def is_interrupted(job: ImportJob) -> bool:
    going_on = (ImportJob.State.RUNNING, ImportJob.State.UPLOADING)
    return job.state in going_on and job.heartbeat_at < timezone.now() - SILENT


# Runners.


def work() -> None:
    """Run what waits and whose files are here. Called by the background work, about once a second."""
    global _tidied
    for job in ImportJob.objects.filter(state=ImportJob.State.WAITING).order_by("created_at")[:20]:
        if folder_of(job).is_dir() and (claim := _claim(job)):
            run(job, claim=claim)
    if timezone.now() - _tidied > TIDY_EVERY:
        _tidied = timezone.now()
        tidy()


def _claim(job: ImportJob) -> UUID | None:
    claim = uuid4()
    waiting = ImportJob.objects.filter(pk=job.pk, state=ImportJob.State.WAITING)
    taken = waiting.update(state=ImportJob.State.RUNNING, claim=claim, heartbeat_at=timezone.now())
    return claim if taken else None


def run(job: ImportJob, *, claim: UUID) -> None:
    diary = _Diary(job, claim)
    folder = folder_of(job)
    pieces = [importing.uploaded(folder / str(place), name=file["name"]) for place, file in enumerate(job.files)]
    try:
        importing.run(job.owner, pieces, on_item=diary.note, on_bytes=diary.count)
    except HistoryError as error:
        diary.end(ImportJob.State.FAILED, error=str(error))
        return
    except Exception:
        diary.end(ImportJob.State.FAILED, error=WENT_WRONG)
        raise
    diary.end(ImportJob.State.DONE)
    shutil.rmtree(folder, ignore_errors=True)


class _Diary:
    """How far a job is, written down about once a second."""

    def __init__(self, job: ImportJob, claim: UUID) -> None:
        self.rows = ImportJob.objects.filter(pk=job.pk, claim=claim)
        self.report = Report()
        self.items: list[dict[str, Any]] = []
        self.bytes = 0
        self.written = time.monotonic()

    def note(self, item: Item) -> None:
        self.report.add(item)
        room = KEPT_REFUSALS if item.outcome in (Outcome.REFUSED, Outcome.NOTED) else KEPT_ITEMS
        if len(self.items) < room:
            self.items.append(item.as_kept())
        self._now_and_then()

    def count(self, size: int) -> None:
        self.bytes += size
        self._now_and_then()

    def _now_and_then(self) -> None:
        if time.monotonic() - self.written >= WRITE_EVERY:
            self._write()
            time.sleep(0.001)  # the process has others to serve

    def _write(self, **fields: Any) -> None:
        counts = self.report.as_json()
        self.rows.update(heartbeat_at=timezone.now(), bytes_read=self.bytes, counts=counts, items=self.items, **fields)
        self.written = time.monotonic()

    def end(self, state: str, *, error: str = "") -> None:
        self._write(state=state, error=error, ended_at=timezone.now())


def tidy() -> None:
    """Files that nobody asked for any more, and reports that are old."""
    now = timezone.now()
    for job in ImportJob.objects.filter(created_at__lt=now - KEPT_FILES):
        shutil.rmtree(folder_of(job), ignore_errors=True)
    ImportJob.objects.filter(created_at__lt=now - KEPT_REPORTS).delete()
    _forget_uploads()
    folder = Path(settings.PARLEY_DATA_DIR, "imports")
    names = {str(name) for name in ImportJob.objects.values_list("pk", flat=True)}
    for lying in folder.iterdir() if folder.is_dir() else ():
        if lying.name not in names and lying.stat().st_mtime < time.time() - 3600:
            shutil.rmtree(lying, ignore_errors=True)


def _forget_uploads() -> None:
    """What forms had sent when a process was killed."""
    folder = Path(settings.FILE_UPLOAD_TEMP_DIR or "")
    for lying in folder.glob("*.upload*") if settings.FILE_UPLOAD_TEMP_DIR and folder.is_dir() else ():
        if lying.stat().st_mtime < time.time() - KEPT_FILES.total_seconds():
            lying.unlink(missing_ok=True)
