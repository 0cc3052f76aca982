"""Statistics of each process, shared through small files in the data directory, because the database may be away.

A file is overwritten in place, so that a process can report lost records even when the disk is full.
"""

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from history.record import counters
from relay.gateway import recording
from relay.runtime.process_locks import ProcessFile
from relay.usage import counters as usage_counters

SIZE = 4096


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


def write() -> None:
    own_file.begin()
    text = json.dumps(asdict(current_stats()), ensure_ascii=False).encode()
    os.pwrite(own_file.fd, text[:SIZE].ljust(SIZE), 0)


def stop() -> None:
    own_file.end()


def all_stats() -> list[ProcessStats]:
    """This process as it is now, and the others of this machine as they last said."""
    return [current_stats(), *filter(None, map(_read, own_file.others()))]


def _read(path: Path) -> ProcessStats | None:
    with contextlib.suppress(OSError, ValueError, TypeError), path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ProcessStats(**json.loads(file.read()))
        path.unlink(missing_ok=True)
    return None
