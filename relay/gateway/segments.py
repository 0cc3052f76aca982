"""The files of the journal: framed records in segments, and how to tell what is whole and who still writes.

A segment begins with a line of its own; each record in it stands behind its length and a checksum. Whatever is not
whole at the end of a segment was being written when its process died: it is the torn tail, and it ends the segment.
The process that writes holds a lock on its segment, which the kernel lets go when the process dies: so a reader knows
without a clock or a process id whether more can come. A segment has its lock before it has its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import secrets
import struct
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from relay.gateway.records import NotARecordError, Record, from_bytes

MAGIC = b"parley journal 2\n"
EARLIER = (b"parley journal 1\n",)  # in which the end of a call never had bytes of its reply with it
FRAME = struct.Struct("<II")
SUFFIX = ".journal"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: its segment, and the bytes from its start to its end."""

    segment: str
    start: int
    end: int


def frame(head: bytes, untouched: bytes = b"") -> list[bytes]:
    """One record as it is written, in pieces, so that a long body is not copied: length and checksum come first."""
    return [FRAME.pack(len(head) + len(untouched), crc32(untouched, crc32(head))), head, untouched]


def new_writer() -> str:
    """A name for one that writes, in this process: part of the names of its segments."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def writer_of(segment: str) -> str:
    return segment.removesuffix(SUFFIX).partition("-")[2]


def create(folder: Path, *, writer: str) -> tuple[str, int]:
    """A new segment, locked before it can be seen; its name sorts by the time it was begun."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{time.time_ns():020d}-{writer}{SUFFIX}"
    hidden = folder / f"{name}.new"
    fd = os.open(hidden, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(fd, MAGIC) != len(MAGIC):
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


def is_ours(path: Path) -> bool:
    """Whether it is written in a way that we know: what a later version has written is left to it."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) in (MAGIC, *EARLIER)
    except FileNotFoundError:
        return True


def whole_records(path: Path, start: int = 0) -> Iterator[tuple[Place, Record]]:
    """The records from there on, up to the first that is not whole. One that we cannot understand is passed over."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) not in (MAGIC, *EARLIER):
            return
        at = max(start, len(MAGIC))
        file.seek(at)
        while payload := _next_payload(file, room=size - at):
            place = Place(path.name, at, at + FRAME.size + len(payload))
            record = _understood(payload)
            if record is not None:
                yield place, record
            at = place.end


def _next_payload(file: BinaryIO, *, room: int) -> bytes:
    """Empty if what lies there is not whole (yet)."""
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return b""
    length, check = FRAME.unpack(head)
    if length > room - FRAME.size:
        return b""
    payload = file.read(length)
    return payload if crc32(payload) == check else b""


def _understood(payload: bytes) -> Record | None:
    try:
        return from_bytes(memoryview(payload))
    except NotARecordError:
        return None


class Reader:
    """Goes through all segments of a folder, in the order of time across the processes that write them.

    `read` gives what is new since it was last called, or since the position that it was made with. How far it came is
    for the caller to keep, together with whatever it made of the records.
    """

    def __init__(self, folder: Path, since: Mapping[str, int] | None = None) -> None:
        self.folder = folder
        self.read_to: dict[str, int] = dict(since or {})
        # Segments that nobody writes any more and that are read to their end.
        self.finished: set[str] = set()

    def read(self) -> Iterator[tuple[Place, Record]]:
        there = [name for name in names(self.folder) if name not in self.finished]
        # Asked before they are read: what is there afterwards of a segment that had no writer is all there will be.
        ended = {name for name in there if not is_written(self.folder / name) and is_ours(self.folder / name)}
        for place, record in read(self.folder, self.read_to, only=there):
            self.read_to[place.segment] = place.end
            yield place, record
        self.finished |= ended

    def writers_gone(self) -> set[str]:
        """Whose segments are all finished: nothing more comes from them. A writer begins a segment before it leaves
        the one before, so that it is never taken for gone in between."""
        at_work = {writer_of(name) for name in names(self.folder) if name not in self.finished}
        return {writer_of(name) for name in self.finished} - at_work

    def position(self, needed_from: Mapping[str, int]) -> dict[str, int]:
        """From where somebody else would have to begin, given what is still needed of what was read."""
        return {**self.read_to, **needed_from}

    def remove_all_but(self, needed: Container[str]) -> None:
        for name in sorted(self.finished):
            if name not in needed:
                (self.folder / name).unlink(missing_ok=True)
                self.finished.discard(name)
                self.read_to.pop(name, None)


def read(
    folder: Path, since: Mapping[str, int] | None = None, *, only: Iterable[str] | None = None
) -> Iterator[tuple[Place, Record]]:
    """Everything that is in the journal since a position, once, in the order of time."""
    starts = dict(since or {})
    each = (whole_records(folder / name, starts.get(name, 0)) for name in (names(folder) if only is None else only))
    yield from heapq.merge(*each, key=lambda found: found[1].at)
