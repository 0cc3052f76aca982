"""Import jobs of the page and the REST API: uploads, progress, and the thread that runs them.

They run in the process that has the files: one job of each user at a time, some of them together, each for a second
before the next continues, so that small imports do not wait for large ones. One UPDATE decides who runs a job. Writing
the progress is its heartbeat. A job without one has lost its runner and may be run again, because importing twice
changes nothing.
"""

import logging
import shutil
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from history import importing
from history.access.permissions import Viewer, can_see_all_of_owner
from history.entries import JsonDict
from history.errors import HistoryError
from history.formats.reports import ImportItem, ImportOutcome
from history.models import ApiKey, ImportJob
from history.record import writer

SILENT = timedelta(minutes=2)  # without a heartbeat the runner counts as dead
KEPT_FILES = timedelta(days=7)
KEPT_REPORTS = timedelta(days=30)
MAX_FILES = 200
UNFINISHED = 4  # times the limit of one


class UploadTooLarge(HistoryError):
    """The upload is larger than the server accepts."""


class TooManyImports(HistoryError):
    """The user has too many uploads that are not imported yet."""


class OffsetMismatch(HistoryError):
    """A piece of a file that does not follow the stored bytes; `size` is their number."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the next piece begins at {size}")
        self.size = size


def create(owner: Any, files: Sequence[tuple[str, int]], *, api_key: ApiKey | None = None) -> ImportJob:
    """A job for files with these names and sizes, to be uploaded next."""
    size = sum(size for _, size in files)
    if size > limit() or len(files) > MAX_FILES:
        raise UploadTooLarge(f"more than {settings.PARLEY_IMPORT_MB} MB, or more than {MAX_FILES} files")
    jobs = ImportJob.objects.filter(owner=owner).exclude(state=ImportJob.State.DONE).only("pk", "files")
    unfinished = sum(file["size"] for job in jobs if folder_of(job).exists() for file in job.files)
    if unfinished + size > UNFINISHED * limit():
        raise TooManyImports("unfinished imports use too much space")
    recording, named = api_key.recording if api_key else "full", []
    for path, file_size in files:
        name = path.replace("\\", "/").rpartition("/")[2][:200] or "file"
        named.append({"name": writer.kept_fields({"title": name}, recording=recording)["title"], "size": file_size})
    job = ImportJob.objects.create(owner=owner, api_key=api_key, files=named)
    folder_of(job).mkdir(parents=True, mode=0o700)
    return job


def jobs_of(viewer: Viewer) -> QuerySet[ImportJob]:
    """The viewer's own jobs; a key that sees only its own sessions sees its own uploads."""
    if not isinstance(viewer, ApiKey):
        return ImportJob.objects.filter(owner=viewer.pk)
    mine = ImportJob.objects.filter(owner=viewer.owner_id)
    return mine if can_see_all_of_owner(viewer) else mine.filter(api_key=viewer)


def limit() -> int:
    return int(settings.PARLEY_IMPORT_MB) * 1024 * 1024


def folder_of(job: ImportJob) -> Path:
    return Path(settings.PARLEY_DATA_DIR, "imports", str(job.pk))


def add_piece(job: ImportJob, *, place: int, offset: int, content: bytes) -> int:
    """Append to file `place`. Returns its size."""
    path, whole = folder_of(job) / str(place), job.files[place]["size"]
    size = path.stat().st_size if path.exists() else 0
    if offset != size or job.state != ImportJob.State.UPLOADING:
        raise OffsetMismatch(size)
    if size + len(content) > whole:
        raise UploadTooLarge("the file is longer than announced")
    with path.open("ab") as file:
        file.write(content)
    ImportJob.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now())
    return size + len(content)


def take_file(job: ImportJob, *, place: int, path: Path) -> None:
    shutil.move(path, folder_of(job) / str(place))


def is_whole(job: ImportJob) -> bool:
    folder = folder_of(job)
    sizes = [(folder / str(place), file["size"]) for place, file in enumerate(job.files)]
    return all(path.exists() and path.stat().st_size == size for path, size in sizes)


def start(job: ImportJob) -> None:
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
    active = (ImportJob.State.RUNNING, ImportJob.State.UPLOADING)
    return job.state in active and job.heartbeat_at < timezone.now() - SILENT


def tidy() -> None:
    """Remove abandoned uploads and old reports."""
    now = timezone.now()
    for job in ImportJob.objects.filter(created_at__lt=now - KEPT_FILES):
        shutil.rmtree(folder_of(job), ignore_errors=True)
    ImportJob.objects.filter(created_at__lt=now - KEPT_REPORTS).delete()
    folder = Path(settings.PARLEY_DATA_DIR, "imports")
    names = {str(name) for name in ImportJob.objects.values_list("pk", flat=True)}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in names and path.stat().st_mtime < time.time() - 3600:
            shutil.rmtree(path, ignore_errors=True)
    # Files of forms that a killed process left.
    uploads = Path(settings.FILE_UPLOAD_TEMP_DIR or "")
    for path in uploads.glob("*.upload*") if settings.FILE_UPLOAD_TEMP_DIR and uploads.is_dir() else ():
        if path.stat().st_mtime < time.time() - KEPT_FILES.total_seconds():
            path.unlink(missing_ok=True)


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


def _start_waiting(running: "deque[_RunningJob]", runner: UUID) -> int:
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
