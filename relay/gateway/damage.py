"""Damaged journal segments: what is lost of them, and where whole records continue.

A process that dies leaves a record whose bytes are fewer than its length says. That is the torn tail, and no caller was
told that it is kept. Anything else that is not whole was damaged afterwards. If a whole record begins just where the
damaged one ends, all between the two is known to be one record, and reading continues there. The same holds for a
damaged first line. Whole records are not searched for any further than that: what lies in a body was sent by a client,
and may look like a record. So the rest is lost, and the segment is put aside for staff to look at.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from relay.gateway.records import Lost
from relay.gateway.segments import ASIDE, EARLIER, FRAME, LONGEST_HEADING, MAGIC, Place, heading_size

logger = logging.getLogger(__name__)

DAMAGED = "the journal is "
Data = bytes | mmap.mmap
# Behind the frame: the letter of a record with a head, the length of the head, and how a head begins.
_LIKE_A_RECORD = re.compile(rb"[AEL](?=[\s\S]{4}\{)")


def is_damage(lost: Lost) -> bool:
    """Whether it was found by a reader; else its writer has told it."""
    return lost.why.startswith(DAMAGED)


def found(path: Path, at: int) -> tuple[Place, Lost] | None:
    """What cannot be read from there on, in a segment without a writer. None means nothing, or a torn tail."""
    with _opened(path) as data:
        if data is None:
            return None
        at = at or heading_size(data[:LONGEST_HEADING])
        return _found_in(path, data, at) if at else _without_heading(path, data)


def _found_in(path: Path, data: Data, at: int) -> tuple[Place, Lost] | None:
    start = _past_whole(data, at)
    lost = _lost(data, start)
    if not lost:
        return None
    is_rest = start + lost == len(data)
    calls = int(not is_rest and data[start + FRAME.size : start + FRAME.size + 1] == b"A")
    return _told(path, start, start + lost, calls=calls, is_put_aside=is_rest)


def _without_heading(path: Path, data: Data) -> tuple[Place, Lost]:
    """The first line is damaged: records may begin where it would have ended, else all is lost."""
    ends = (len(line) for line in (MAGIC, *EARLIER))
    end = next((size for size in ends if _end_of_whole(data, size)), len(data))
    return _told(path, 0, end, calls=0, is_put_aside=True)


def _told(path: Path, start: int, end: int, *, calls: int, is_put_aside: bool) -> tuple[Place, Lost]:
    why = f"damaged: {path.name} at byte {start}" + (f", put aside as {_put_aside(path)}" if is_put_aside else "")
    # Of a file that was cut to nothing, at least the first line is missing.
    lost = (end - start) or len(MAGIC)
    logger.error("The relay's journal is %s; %d bytes of it cannot be read.", why, lost)
    told = Lost(at=path.stat().st_mtime, calls=calls, lost_bytes=lost, why=f"{DAMAGED}{why}")
    return Place(path.name, start, end), told


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
    """Whole records that we do not understand are passed over, as they are in reading."""
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
    """Where the frame that begins there says that it ends; past the data if there is not even a frame."""
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


def _put_aside(path: Path) -> str:
    """Under another name too: the journal removes only its own."""
    name = f"{path.name}{ASIDE}"
    with contextlib.suppress(FileExistsError):
        os.link(path, path.with_name(name))
    return name
