"""The files of the journal (segments): names, locks, first lines, and copies of damaged bytes.

`record_framing` reads the records behind the first line. The writing process holds a lock on its segment, which the
kernel releases when the process dies: so a reader knows without a clock or a process id whether more can come. A
segment has its lock before it has its name.
"""

import contextlib
import fcntl
import logging
import os
import re
import time
from pathlib import Path
from zlib import crc32

from relay.gateway.journal.records import DAMAGED, RecordsLost

logger = logging.getLogger(__name__)

VERSION = 4
_HEADING = re.compile(rb"(parley journal (\d{1,9})) ([0-9a-f]{8})\n")
_LONGEST_HEADING = 40
SUFFIX = ".journal"
# Least distance between the numbers of a writer's segments: a copy of carried-over calls gets a name in between.
BETWEEN = 1_000_000
# Damaged bytes of a segment, for staff to look at. They do not count against the size of the journal.
DAMAGED_SUFFIX = ".damaged"
# A record larger than a reader wants to hold, and damaged bytes, are read in pieces of this size.
CHUNK = 1024 * 1024
UNNAMED_SUFFIX = ".new"  # a segment before it has its name


def heading(version: int) -> bytes:
    """The first line of a segment. By its checksum a later release differs from damage."""
    line = b"parley journal %d" % version
    return b"%s %08x\n" % (line, crc32(line))


MAGIC = heading(VERSION)


def writer_of(segment: str) -> str:
    return segment.removesuffix(SUFFIX).partition("-")[2]


def number_of(segment: str) -> int:
    number = segment.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def name_of(number: int, *, writer: str) -> str:
    return f"{number:020d}-{writer}{SUFFIX}"


def create(folder: Path, first: bytes = MAGIC, *, writer: str, after: str = "") -> tuple[str, int]:
    """A new segment, locked before it can be seen. Its name sorts by time, and behind the segment `after`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = name_of(max(time.time_ns(), number_of(after) + BETWEEN), writer=writer)
    hidden = folder / f"{name}{UNNAMED_SUFFIX}"
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(fd, first) != len(first):
            raise OSError("no space for a segment")
        hidden.rename(folder / name)
    except BaseException:
        os.close(fd)
        hidden.unlink(missing_ok=True)
        raise
    return name, fd


def names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []


def bytes_in(folder: Path) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if not entry.name.endswith(DAMAGED_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat().st_size
    return total


def is_written(path: Path) -> bool:
    """Whether a running process has it open for writing."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return False


def is_of_later_release(path: Path) -> bool:
    """Whether a later release has written it: that one reads it."""
    try:
        with path.open("rb") as file:
            found = _HEADING.match(file.read(_LONGEST_HEADING))
    except FileNotFoundError:
        return False
    return found is not None and int(found[3], 16) == crc32(found[1]) and int(found[2]) > VERSION


def note_loss(path: Path, start: int, end: int, *, at_position: int, lost: int, calls: int) -> RecordsLost:
    """Log what is lost of a segment, and put the bytes aside that cannot be read."""
    place = f"{path.name} at byte {at_position}"
    if end > start and (name := _keep_damaged_bytes(path, start, end)):
        place += f", put aside as {name}"
    logger.error("The relay's journal is damaged: %s; %d bytes of it are lost.", place, lost)
    return RecordsLost(at=path.stat().st_mtime, calls=calls, lost_bytes=lost, why=f"{DAMAGED}: {place}")


def _keep_damaged_bytes(path: Path, start: int, end: int) -> str:
    """Copy these bytes to a file with the time of the segment. Empty if the disk is full."""
    copy = path.with_name(f"{path.name}.{start}{DAMAGED_SUFFIX}")
    try:
        fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with path.open("rb") as source, os.fdopen(fd, "wb") as target:
            source.seek(start)
            for at in range(start, end, CHUNK):
                target.write(source.read(min(CHUNK, end - at)))
        written_at = path.stat().st_mtime
        os.utime(copy, (written_at, written_at))
    except OSError as error:
        logger.error("Damaged bytes of %s cannot be put aside: %s", path.name, error)
        return ""
    return copy.name
