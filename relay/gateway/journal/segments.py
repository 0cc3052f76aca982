"""The files of the journal (segments): names, locks and first lines; reading of formats 1 to 3.

A segment begins with a line of its own; `frames` reads the records behind it, and this module those of earlier
formats. The writing process holds a lock on its segment, which the kernel releases when the process dies: so a reader
knows without a clock or a process id whether more can come. A segment has its lock before it has its name.
"""

import contextlib
import fcntl
import os
import re
import secrets
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from relay.gateway.journal.records import NotARecordError, Record, from_bytes, head_size, left_out

VERSION = 4
# Of formats 1 to 3: length and checksum.
FRAME = struct.Struct("<II")
_HEADING = re.compile(rb"(parley journal (\d{1,9})) ([0-9a-f]{8})\n")
LONGEST_HEADING = 40
# A record larger than a reader wants to hold is read in pieces of this size.
CHUNK = 1024 * 1024
SUFFIX = ".journal"
# So far apart are the numbers of a writer's segments at least: what is carried over from one finds a name behind it.
BETWEEN = 1_000_000
# Damaged bytes of a segment, for staff to look at. They do not count against the size of the journal.
ASIDE = ".damaged"
# A segment before it has its name.
UNNAMED = ".new"


def heading(version: int) -> bytes:
    """The first line of a segment. By its checksum a later release differs from damage."""
    line = b"parley journal %d" % version
    return b"%s %08x\n" % (line, crc32(line))


MAGIC = heading(VERSION)
# 1: the end of a call never had bytes of its reply with it. 2: bytes of a reply did not say where they belong.
# 3: frames did not say where they belong, and the file did not say how long it was.
EARLIER = (b"parley journal 1\n", b"parley journal 2\n", heading(3))


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """The position of a record: segment, first and last byte, and how many of the bytes are its frame.

    `moved` bytes before it are missing from the file. A `position` counts them.
    """

    segment: str
    start: int
    end: int
    frame: int = FRAME.size
    moved: int = 0

    @property
    def begins(self) -> int:
        return self.start + self.moved

    @property
    def position(self) -> int:
        return self.end + self.moved


def new_writer() -> str:
    """The name of a writer, which is part of the names of its segments."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def writer_of(segment: str) -> str:
    return segment.removesuffix(SUFFIX).partition("-")[2]


def number_of(segment: str) -> int:
    number = segment.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def name_of(number: int, *, writer: str) -> str:
    return f"{number:020d}-{writer}{SUFFIX}"


def create(folder: Path, first: bytes = MAGIC, *, writer: str, after: str = "") -> tuple[str, int]:
    """A new segment that begins with `first`, locked before it can be seen. Its name sorts by the time it was begun,
    and behind that of the writer's segment before it, even if the clock was set back."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = name_of(max(time.time_ns(), number_of(after) + BETWEEN), writer=writer)
    hidden = folder / f"{name}{UNNAMED}"
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
    try:
        for entry in os.scandir(folder):
            if entry.name.endswith(ASIDE):
                continue
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat().st_size
    except FileNotFoundError:
        return 0
    return total


def is_written(path: Path) -> bool:
    """Whether a running process has it open for writing."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def is_of_later_release(path: Path) -> bool:
    """Whether a later release has written it: that one reads it."""
    try:
        with path.open("rb") as file:
            found = _HEADING.match(file.read(LONGEST_HEADING))
    except FileNotFoundError:
        return False
    return found is not None and int(found[3], 16) == crc32(found[1]) and int(found[2]) > VERSION


def is_of_earlier_release(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(heading_size(file.read(LONGEST_HEADING)))
    except FileNotFoundError:
        return False


def heading_size(start: bytes) -> int:
    """How long the first line is; 0 if it is not that of an earlier format."""
    return next((len(line) for line in EARLIER if start.startswith(line)), 0)


def whole_records(path: Path, start: int = 0, *, most: int | None = None) -> Iterator[tuple[RecordPosition, Record]]:
    """The records of an earlier format from a position on, up to the first that is not whole. Unknown kinds are
    skipped.

    Of a record larger than `most` bytes, what is behind its head is left out. A `start` is the position of a record.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        at = start or heading_size(file.read(LONGEST_HEADING))
        if not at:
            return
        file.seek(at)
        while found := _next_record(file, available=size - at, most=most):
            length, record = found
            place = RecordPosition(path.name, at, at + FRAME.size + length)
            if record is not None:
                yield place, record
            at = place.end


def _next_record(file: BinaryIO, *, available: int, most: int | None) -> tuple[int, Record | None] | None:
    """Its length, and the record if its kind is known; None if it is not whole (yet)."""
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    length, check = FRAME.unpack(head)
    if not length or length > available - FRAME.size:
        return None
    if most is not None and length > most:
        _, record, found = read_large(file, length)
    else:
        payload = file.read(length)
        record, found = parse_record(payload), crc32(payload)
    return (length, record) if found == check else None


def read_large(file: BinaryIO, length: int, check: int = 0) -> tuple[bytes, Record | None, int]:
    """A large record, read in pieces: its first byte, its head with the size and hash of the rest, and a checksum that
    continues `check`."""
    start = file.read(min(length, 64))
    head = start[: head_size(start)]
    head += file.read(min(max(0, head_size(start) - len(start)), length - len(start)))
    rest = start[len(head) :]
    digest, check = sha256(rest), crc32(rest, crc32(head, check))
    left = length - len(head) - len(rest)
    while left and (chunk := file.read(min(left, CHUNK))):
        digest.update(chunk)
        check = crc32(chunk, check)
        left -= len(chunk)
    record = None
    with contextlib.suppress(NotARecordError):
        record = left_out(memoryview(head), size=length - len(head), sha256=digest.hexdigest())
    return start[:1], record, check


def parse_record(payload: bytes) -> Record | None:
    """None for a kind of record that this release does not know."""
    try:
        return from_bytes(memoryview(payload))
    except NotARecordError:
        return None
