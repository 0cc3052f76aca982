"""Statistics of each process, shared through small files in the data directory.

A file is overwritten in place, so that a process can report lost records even when the disk is full. Its writer holds a
lock on it; a file without a lock belongs to a process that has ended, and is removed. No database is needed, because
that may be away.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from django.conf import settings

from history.record import counters
from relay.gateway import recording
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


class _Here:
    """The file of this process. After a fork it is the parent's."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.fd = -1
        self.pid = 0


_here = _Here()


def folder() -> Path:
    return Path(settings.PARLEY_DATA_DIR) / "processes"


def current_stats() -> ProcessStats:
    """This process, at this moment."""
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
    """The background's job."""
    if _here.pid != os.getpid() or (_here.path and _here.path.parent != folder()):
        _begin()
    text = json.dumps(asdict(current_stats()), ensure_ascii=False).encode()
    os.pwrite(_here.fd, text[:SIZE].ljust(SIZE), 0)


def stop() -> None:
    """The end of this process."""
    if _here.pid == os.getpid() and _here.path is not None:
        _here.path.unlink(missing_ok=True)
        os.close(_here.fd)
    _here.path, _here.fd, _here.pid = None, -1, 0


def all_stats() -> list[ProcessStats]:
    """This process as it is now, and the others of this machine as they last said."""
    mine = _here.path.name if _here.path and _here.pid == os.getpid() else ""
    return [current_stats(), *_others(mine)]


def _begin() -> None:
    stop()
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder() / f"{os.getpid()}-{secrets.token_hex(4)}.json"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    _here.path, _here.fd, _here.pid = path, fd, os.getpid()


def _others(mine: str) -> Iterator[ProcessStats]:
    for path in sorted(folder().glob("*.json")):
        if path.name != mine and (found := _read(path)):
            yield found


def _read(path: Path) -> ProcessStats | None:
    with contextlib.suppress(OSError, ValueError, TypeError), path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ProcessStats(**json.loads(file.read()))
        path.unlink(missing_ok=True)
    return None
