"""The files of the journal (segments): names, locks and first lines; reading of formats 1 to 3.

A segment begins with a line of its own; `frames` has the records behind it, and this module those of earlier formats.
The process that writes holds a lock on its segment, which the kernel lets go when the process dies: so a reader knows
without a clock or a process id whether more can come. A segment has its lock before it has its name.
"""

from __future__ import annotations

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
    """The first line of a segment. Its checksum tells a later release from damage."""
    line = b"parley journal %d" % version
    return b"%s %08x\n" % (line, crc32(line))


MAGIC = heading(VERSION)
# 1: the end of a call never had bytes of its reply with it. 2: bytes of a reply did not say where they belong.
# 3: frames did not say where they belong, and the file did not say how long it was.
EARLIER = (b"parley journal 1\n", b"parley journal 2\n", heading(3))


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Where a record lies: its segment, the bytes from its start to its end, and how many of those are its frame.

    `moved`: so many bytes before it are missing from the file. A `position` counts them.
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
    """A name for one that writes, in this process: part of the names of its segments."""
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
    and behind that of the writer's segment before it, whatever the clock says."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = name_of(max(time.time_ns(), number_of(after) + BETWEEN), writer=writer)
    hidden = folder / f"{name}{UNNAMED}"
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(fd, first) != len(first):
            raise OSError("no room for a segment")
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
    """Whether a living process still has it open for writing. False for one that is gone."""
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
    """Whether it is written in a way that we do not know yet: it is left to the release that does."""
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
    """The records of an earlier format from there on, up to the first that is not whole. One that we cannot understand
    is passed over.

    Of a record larger than `most` bytes, what lies behind its head is left out. With a `start` the first line is not
    looked at: callers pass positions where records begin.
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
        while found := _next_record(file, room=size - at, most=most):
            length, record = found
            place = RecordPosition(path.name, at, at + FRAME.size + length)
            if record is not None:
                yield place, record
            at = place.end


def _next_record(file: BinaryIO, *, room: int, most: int | None) -> tuple[int, Record | None] | None:
    """Its length, and what it says if we understand it; None if what lies there is not whole (yet)."""
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    length, check = FRAME.unpack(head)
    if not length or length > room - FRAME.size:
        return None
    if most is not None and length > most:
        return _without_what_is_behind(file, length, check)
    payload = file.read(length)
    return (length, _understood(payload)) if crc32(payload) == check else None


def _without_what_is_behind(file: BinaryIO, length: int, check: int) -> tuple[int, Record | None] | None:
    """A large record, read piece by piece: its head, and the size and hash of what lies behind that."""
    start = file.read(min(length, 64))
    head = start[: head_size(start)]
    head += file.read(min(max(0, head_size(start) - len(start)), length - len(start)))
    behind, found = sha256(start[len(head) :]), crc32(head)
    found = crc32(start[len(head) :], found)
    left = length - max(len(start), len(head))
    while left and (chunk := file.read(min(left, CHUNK))):
        behind.update(chunk)
        found = crc32(chunk, found)
        left -= len(chunk)
    if left or found != check:
        return None
    try:
        return length, left_out(memoryview(head), size=length - len(head), sha256=behind.hexdigest())
    except NotARecordError:
        return length, None


def _understood(payload: bytes) -> Record | None:
    try:
        return from_bytes(memoryview(payload))
    except NotARecordError:
        return None
