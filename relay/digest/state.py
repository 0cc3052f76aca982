"""State of the relay for the admin and /metrics: the processes, the backlog of the journals, and what was lost.

Each process writes its statistics into a small file in the data directory, because the database may be away. A file is
overwritten in place, so that a process can report lost records even when the disk is full.
"""

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from history.record import counters
from relay.digest import process
from relay.gateway import recording
from relay.gateway.journal.record_framing import START
from relay.gateway.journal.segments import names, number_of
from relay.gateway.journal_settings import journal_folder
from relay.models import JournalPosition
from relay.runtime.process_locks import ProcessFile
from relay.usage import counters as usage_counters

SIZE = 4096
LATE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    """`unreported_*` is what the journal lost and could not report in itself yet. `ended`: source, reason, count."""

    process: str
    resident: int = 0
    calls: int = 0
    sockets: int = 0
    unreported_calls: int = 0
    unreported_bytes: int = 0
    unreported_why: str = ""
    ended: list[tuple[str, str, int]] = field(default_factory=list)


own_file = ProcessFile("processes")


def current_stats() -> ProcessStats:
    losses = recording.unreported_losses()
    return ProcessStats(
        process=str(os.getpid()),
        resident=psutil.Process().memory_info().rss,
        calls=usage_counters.count_running(),
        sockets=counters.now["sockets"],
        unreported_calls=losses.calls,
        unreported_bytes=losses.lost_bytes,
        unreported_why=losses.why[:200],
        ended=[(source, reason, count) for (source, reason), count in sorted(counters.ended.items())],
    )


def write_stats() -> None:
    own_file.begin()
    text = json.dumps(asdict(current_stats()), ensure_ascii=False).encode()
    os.pwrite(own_file.fd, text[:SIZE].ljust(SIZE), 0)


def stop_stats() -> None:
    own_file.end()


def all_stats() -> list[ProcessStats]:
    """This process as it is now, and the others of this machine as they last said."""
    return [current_stats(), *filter(None, map(_read, own_file.others()))]


def _read(path: Path) -> ProcessStats | None:
    with suppress(OSError, ValueError, TypeError), path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ProcessStats(**json.loads(file.read()))
        path.unlink(missing_ok=True)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    waiting: int  # bytes of this machine's journal that are not in the record
    behind: float  # how many seconds the oldest of them waits
    # Losses in the database.
    stored_calls: int
    stored_bytes: int
    # These, and those that only processes of this machine know.
    lost_calls: int
    lost_bytes: int
    lost_why: str
    lost_at: datetime | None

    @property
    def is_late(self) -> bool:
        return self.behind >= LATE_SECONDS

    @property
    def is_well(self) -> bool:
        return not self.lost_calls and not self.lost_bytes and not self.is_late


def read_state(now: datetime | None = None) -> JournalState:
    """Losses of all journals of the installation; the backlog of this machine's."""
    folder, now = journal_folder(), now or datetime.now(UTC)
    losing = [one for one in all_stats() if one.unreported_calls or one.unreported_bytes]
    rows = list(JournalPosition.objects.all())
    own_name = ""
    with suppress(OSError):
        own_name = (folder / process.NAME).read_text().strip()
    own = next((row for row in rows if row.pk == own_name), None)
    waiting = _backlog(folder, own.position.get("to", {}) if own else {})
    stored_calls, stored_bytes = sum(row.lost_calls for row in rows), sum(row.lost_bytes for row in rows)
    last = max((row for row in rows if row.lost_at), key=lambda row: row.lost_at or datetime.min, default=None)
    return JournalState(
        waiting=waiting,
        behind=_age_of_backlog(folder, own, now) if waiting else 0.0,
        stored_calls=stored_calls,
        stored_bytes=stored_bytes,
        lost_calls=stored_calls + sum(one.unreported_calls for one in losing),
        lost_bytes=stored_bytes + sum(one.unreported_bytes for one in losing),
        lost_why=losing[0].unreported_why if losing else last.lost_why if last else "",
        lost_at=now if losing else last.lost_at if last else None,
    )


def _backlog(folder: Path, digested_to: dict[str, int]) -> int:
    total = 0
    for name in names(folder):
        with suppress(FileNotFoundError):
            total += max(0, (folder / name).stat().st_size - max(digested_to.get(name, 0), START))
    return total


def _age_of_backlog(folder: Path, own: JournalPosition | None, now: datetime) -> float:
    """Since the last time that everything was digested, or since the oldest segment was begun."""
    created = [number / 1e9 for number in map(number_of, names(folder)) if number]
    digested = [own.digested_at.timestamp()] if own and own.digested_at else []
    oldest = max([*digested, min(created, default=now.timestamp())])
    return max(0.0, now.timestamp() - oldest)
