"""Frames around journal records: reading them, and finding what is missing of a file.

Each frame begins with four bytes that follow from the name of its file. No client knows them, so a body cannot look
like a record, and whole records are found again behind damaged ones. A frame has the byte position at which its record
was written, and how many calls were accepted before it: so a hole is detected anywhere, with its size and its calls.

After each write, the numbers of bytes and calls are stored behind the first line. A file that is shorter was cut. The
beginning of a record beyond that number is the torn tail of a process that died: it was acknowledged to no caller.

Positions are those of the writer. In a file with a hole a record is before its position; `RecordPosition` has both.
"""

import logging
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

from relay.gateway.journal.records import Record, RecordsLost, header_size, parse_record
from relay.gateway.journal.segments import CHUNK, MAGIC, note_loss

logger = logging.getLogger(__name__)

_BEGINNING = struct.Struct("<4sIQI")  # mark, length, position, calls before
_CHECK = struct.Struct("<I")
FRAME_SIZE = _BEGINNING.size + _CHECK.size
_COUNTS = struct.Struct("<QI")  # bytes, calls
COUNTS_SIZE = _COUNTS.size + _CHECK.size
# Where the counts are, and where the first record is.
COUNTS_AT = len(MAGIC)
START = COUNTS_AT + COUNTS_SIZE

Payload = tuple[bytes, bytes]  # the head of a record, and what is behind it untouched


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """The segment of a record, its first and last byte, and how many bytes before it are missing from the file."""

    segment: str
    start: int
    end: int
    moved: int = 0

    @property
    def payload(self) -> int:
        """The first byte behind the frame."""
        return self.start + FRAME_SIZE

    @property
    def begins(self) -> int:
        return self.start + self.moved

    @property
    def position(self) -> int:
        return self.end + self.moved


def mark_of(segment: str) -> bytes:
    return crc32(segment.encode()).to_bytes(4, "little")


def is_call(head: bytes) -> bool:
    return head[:1] == b"A"


def pack_frame(pieces: Iterable[bytes], mark: bytes, *, length: int, position: int, calls: int) -> bytes:
    """The frame of a record, which is written behind it in these pieces."""
    beginning = _BEGINNING.pack(mark, length, position, calls)
    check = crc32(beginning)
    for piece in pieces:
        check = crc32(piece, check)
    return beginning + _CHECK.pack(check)


def pack_counts(written: int, calls: int) -> bytes:
    counts = _COUNTS.pack(written, calls)
    return counts + _CHECK.pack(crc32(counts))


def heading() -> bytes:
    """The first bytes of a file without records."""
    return MAGIC + pack_counts(START, 0)


class _Frame(NamedTuple):
    """`calls` were accepted before the record, `next_calls` with it."""

    start: int
    end: int
    position: int
    calls: int
    next_calls: int
    record: Record | None


def read_records(
    path: Path, since: int = 0, *, until: int | None = None, is_ended: bool, most: int | None = None
) -> Iterator[tuple[RecordPosition, Record]]:
    """The records from a position on, and what is missing between them.

    Of a record larger than `most` bytes, only the head is read. While a file is written (not `is_ended`), reading ends
    at the first record that is not whole.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        reading = _Reading(path, file, is_ended=is_ended, most=most)
        for place, record in reading.records(since):
            if until is not None and place.position > until:
                return
            yield place, record


class _Reading:
    """One pass through a file: `at` is the current byte, `position` and `calls` are what the next frame should have."""

    def __init__(self, path: Path, file: BinaryIO, *, is_ended: bool, most: int | None) -> None:
        self.path, self.file, self.is_ended, self.most = path, file, is_ended, most
        self.size = os.fstat(file.fileno()).st_size
        self.mark = mark_of(path.name)
        self.at = self.position = self.calls = 0
        self.has_repeats = False

    def records(self, since: int) -> Iterator[tuple[RecordPosition, Record]]:
        if not self._begin(since):
            return
        while True:
            frame = self._frame_at(self.at)
            if frame is None or frame.position > self.position:
                if not self.is_ended:
                    return
                if found := self._look_ahead(frame):
                    yield found
                if self.at >= self.size:
                    return
                continue
            if frame.position == self.position:
                if frame.record is not None:
                    moved = frame.position - frame.start
                    yield RecordPosition(self.path.name, frame.start, frame.end, moved), frame.record
                self.position, self.calls = frame.position + frame.end - frame.start, frame.next_calls
            elif not self.has_repeats:
                logger.warning("The relay's journal has records twice: %s at byte %d.", self.path.name, self.at)
                self.has_repeats = True
            self.at = frame.end

    def _begin(self, since: int) -> bool:
        """Go to a position. False if there is nothing to read yet."""
        if since and (frame := self._frame_at(since)) is not None and frame.position == since:
            self.at, self.position, self.calls = since, since, frame.calls
            return True
        if since >= self.size and (not self.is_ended or 0 < (self._written() or (0, 0))[0] <= since):
            return False  # it is read to its end
        has_heading = self.size >= START and self.file.seek(0) == 0 and self.file.read(len(MAGIC)) == MAGIC
        if not self.is_ended and (since or not has_heading):
            return False
        self.at = self.position = START if has_heading else 0
        if since:
            # The position has moved, because the file was damaged. Skip the records before it.
            while (frame := self._frame_at(self.at) or self._next_frame(self.at)) and frame.position < since:
                self.at, self.calls = frame.end, max(self.calls, frame.next_calls)
            self.position = since
        return True

    def _look_ahead(self, frame: _Frame | None) -> tuple[RecordPosition, RecordsLost] | None:
        """Go to the next whole record, or to the end. Returns what is missing before it, if anything."""
        start = self.at
        frame = frame or self._next_frame(start)
        if frame is not None:
            return self._note_loss(frame.start, position=frame.position, calls=frame.calls)
        written, left = self._written(), self.size - start
        if written is None:
            # The end is unknown: at least the counts are lost. The position is the same the next time.
            behind = self.position if self.position > self.size else self.size + COUNTS_SIZE
            return self._note_loss(self.size, position=behind, least=COUNTS_SIZE)
        if written[0] > self.position:
            return self._note_loss(self.size, position=written[0], calls=written[1])
        if left and not self._is_torn():
            return self._note_loss(self.size, position=self.position + left)
        self.at = self.size
        return None

    def _note_loss(
        self, end: int, *, position: int, calls: int = 0, least: int = 0
    ) -> tuple[RecordPosition, RecordsLost]:
        """No record is whole up to byte `end`, where `position` and `calls` of the writer continue."""
        lost, lost_calls = max(least, position - self.position), max(0, calls - self.calls)
        loss = note_loss(self.path, self.at, end, at_position=self.position, lost=lost, calls=lost_calls)
        place = RecordPosition(self.path.name, self.at, end, moved=position - end)
        self.at, self.position, self.calls = end, position, max(calls, self.calls)
        return place, loss

    def _is_torn(self) -> bool:
        """Whether the rest of the file is the beginning of the record that was to be written next."""
        self.file.seek(self.at)
        rest = self.file.read(FRAME_SIZE)
        if len(rest) < FRAME_SIZE:
            return self.mark.startswith(rest[: len(self.mark)])
        mark, length, position, calls = _BEGINNING.unpack_from(rest)
        is_next = (mark, position, calls) == (self.mark, self.position, self.calls)
        return is_next and self.at + FRAME_SIZE + length > self.size

    def _written(self) -> tuple[int, int] | None:
        """The bytes and calls that were written; None if the counts are damaged."""
        self.file.seek(COUNTS_AT)
        counts = self.file.read(COUNTS_SIZE)
        if len(counts) < COUNTS_SIZE or crc32(counts[: _COUNTS.size]) != _CHECK.unpack_from(counts, _COUNTS.size)[0]:
            return None
        written, calls = _COUNTS.unpack_from(counts)
        return int(written), int(calls)

    def _next_frame(self, after: int) -> _Frame | None:
        """The next whole record with a later position, at any byte."""
        if not self.size:
            return None
        with mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(self.mark, after)
            while at >= 0:
                frame = self._frame_at(at)
                if frame is not None and frame.position >= self.position:
                    return frame
                at = data.find(self.mark, at + 1 if frame is None else frame.end)
        return None

    def _frame_at(self, at: int) -> _Frame | None:
        """None if no whole record begins there."""
        self.file.seek(at)
        beginning = self.file.read(FRAME_SIZE)
        if len(beginning) < FRAME_SIZE:
            return None
        mark, length, position, calls = _BEGINNING.unpack_from(beginning)
        if mark != self.mark or not length or length > self.size - at - FRAME_SIZE:
            return None
        check, wanted = crc32(beginning[: _BEGINNING.size]), _CHECK.unpack_from(beginning, _BEGINNING.size)[0]
        if self.most is not None and length > self.most:
            head, record, check = _read_large(self.file, length, check)
        else:
            head = self.file.read(length)
            check = crc32(head, check)
            record = parse_record(head) if check == wanted else None
        if check != wanted:
            return None
        return _Frame(at, at + FRAME_SIZE + length, position, calls, calls + is_call(head), record)


def _read_large(file: BinaryIO, length: int, check: int) -> tuple[bytes, Record | None, int]:
    """A large record, read in pieces: its head, the record with the size and hash of the rest, and its checksum."""
    start = file.read(min(length, 64))
    head = start[: header_size(start)]
    head += file.read(min(max(0, header_size(start) - len(start)), length - len(start)))
    rest = start[len(head) :]
    digest, check = sha256(rest), crc32(rest, crc32(head, check))
    left = length - len(head) - len(rest)
    while left and (chunk := file.read(min(left, CHUNK))):
        digest.update(chunk)
        check = crc32(chunk, check)
        left -= len(chunk)
    return head, parse_record(head, skipped=length - len(head), skipped_hash=digest.hexdigest()), check
