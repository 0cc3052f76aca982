"""Damaged journal segments: the report of what is lost, and damage in files of formats 1 to 3.

A process that dies leaves a record with fewer bytes than its length. That is the torn tail, which was acknowledged to
no caller. Anything else that is not whole was damaged afterwards. Files of earlier formats have no positions: if a
whole record begins where the damaged one ends, reading continues there, else the rest is lost. `frames` finds more in
files of the current format. Bytes that cannot be read are put aside for staff.
"""

import contextlib
import logging
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from relay.gateway.journal.records import Lost
from relay.gateway.journal.segments import ASIDE, CHUNK, FRAME, LONGEST_HEADING, RecordPosition, heading_size

logger = logging.getLogger(__name__)

DAMAGED = "the journal is "
Data = bytes | mmap.mmap
# Behind the frame: the letter of a record with a head, the length of the head, and how a head begins.
_LIKE_A_RECORD = re.compile(rb"[AEL](?=[\s\S]{4}\{)")


def is_damage(lost: Lost) -> bool:
    """Whether a reader found it; otherwise its writer reported it."""
    return lost.why.startswith(DAMAGED)


def find_damage(path: Path, at: int) -> tuple[RecordPosition, Lost] | None:
    """What cannot be read from a position on, in a segment of an earlier format without a writer. None if all is whole
    but a torn tail."""
    with _opened(path) as data:
        if data is None:
            return None
        return _found_in(path, data, at or heading_size(data[:LONGEST_HEADING]))


def _found_in(path: Path, data: Data, at: int) -> tuple[RecordPosition, Lost] | None:
    start = _past_whole(data, at)
    lost = _lost(data, start)
    if not lost:
        return None
    is_rest = start + lost == len(data)
    calls = int(not is_rest and data[start + FRAME.size : start + FRAME.size + 1] == b"A")
    loss = note_loss(path, start, start + lost, at_position=start, lost=lost, calls=calls)
    return RecordPosition(path.name, start, start + lost), loss


def note_loss(path: Path, start: int, end: int, *, at_position: int, lost: int, calls: int) -> Lost:
    """Log what is lost of a segment, and put the bytes aside that cannot be read."""
    why = f"damaged: {path.name} at byte {at_position}"
    if end > start and (name := _put_aside(path, start, end)):
        why += f", put aside as {name}"
    logger.error("The relay's journal is %s; %d bytes of it are lost.", why, lost)
    return Lost(at=path.stat().st_mtime, calls=calls, lost_bytes=lost, why=f"{DAMAGED}{why}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Data | None]:
    """The bytes of a segment, not all in memory: one record may be very large."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    with file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _past_whole(data: Data, at: int) -> int:
    """The first byte that no whole record covers."""
    while end := _end_of_whole(data, at):
        at = end
    return at


def _lost(data: Data, at: int) -> int:
    """How many bytes, where no whole record begins; 0 for a torn tail."""
    end, size = _end_of(data, at), len(data)
    if at >= size:
        return 0
    if end > size:
        return size - at if _has_whole(data, at) else 0
    return end - at if _end_of_whole(data, end) else size - at


def _has_whole(data: Data, at: int) -> bool:
    likely = (like.start() - FRAME.size for like in _LIKE_A_RECORD.finditer(data, at + FRAME.size))
    return any(_end_of_whole(data, place) for place in likely)


def _end_of(data: Data, at: int) -> int:
    """The end that the frame at this byte claims; past the data if there is no frame."""
    if len(data) < at + FRAME.size:
        return len(data) + 1
    length: int = FRAME.unpack_from(data, at)[0]
    return at + FRAME.size + length


def _end_of_whole(data: Data, at: int) -> int:
    """0 if no whole record begins there."""
    end = _end_of(data, at)
    if end > len(data) or end == at + FRAME.size:
        return 0
    check: int = FRAME.unpack_from(data, at)[1]
    with memoryview(data) as view, view[at + FRAME.size : end] as payload:
        return end if crc32(payload) == check else 0


def _put_aside(path: Path, start: int, end: int) -> str:
    """Copy these bytes to a file with the time of the segment. Empty if the disk is full."""
    name = f"{path.name}.{start}{ASIDE}"
    try:
        with path.open("rb") as source, _private(path.with_name(name)) as target:
            source.seek(start)
            for at in range(start, end, CHUNK):
                target.write(source.read(min(CHUNK, end - at)))
        written_at = path.stat().st_mtime
        os.utime(path.with_name(name), (written_at, written_at))
    except OSError as error:
        logger.error("Damaged bytes of %s cannot be put aside: %s", path.name, error)
        return ""
    return name


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
