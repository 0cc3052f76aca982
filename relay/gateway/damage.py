"""A damaged segment: how much of it is lost, and where whole records go on.

A process that dies leaves a record whose bytes are fewer than its length says; that is the torn tail, and nobody was
told that it is kept. Anything else that is not whole was damaged afterwards. If a whole record begins just where the
damaged one ends, all between the two is known to be one record, and reading goes on there. Whole records are not
searched for any further than that: what lies in a body was sent by a client, and may look like a record. So the rest
is lost, and the segment is put aside for somebody to look at.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path
from zlib import crc32

from relay.gateway.records import Lost
from relay.gateway.segments import ASIDE, FRAME, MAGIC, Place

logger = logging.getLogger(__name__)

# Behind the frame: the letter of a record with a head, the length of the head, and how a head begins.
_LIKE_A_RECORD = re.compile(rb"[AEL](?=[\s\S]{4}\{)")


def found(path: Path, at: int) -> tuple[Place, Lost] | None:
    """What cannot be read from there on, in a segment that nobody writes any more. None: nothing, or a torn tail."""
    rest, begun = _rest(path, max(at, len(MAGIC)))
    damaged = _past_whole(rest)
    lost = _lost(rest[damaged:])
    if not lost:
        return None
    start = begun + damaged
    is_rest = damaged + lost == len(rest)
    why = f"damaged: {path.name} at byte {start}" + (f", put aside as {_put_aside(path)}" if is_rest else "")
    logger.error("The relay's journal is %s; %d bytes of it cannot be read.", why, lost)
    calls = int(not is_rest and rest[damaged + FRAME.size : damaged + FRAME.size + 1] == b"A")
    return Place(path.name, start, start + lost), Lost(
        at=path.stat().st_mtime, calls=calls, lost_bytes=lost, why=f"the journal is {why}"
    )


def _rest(path: Path, at: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size <= at:
                return b"", at
            file.seek(at)
            return file.read(), at
    except FileNotFoundError:
        return b"", at


def _past_whole(rest: bytes) -> int:
    """Whole records that we do not understand are passed over, as they are in reading."""
    at = 0
    while end := _end_of_whole(rest, at):
        at = end
    return at


def _lost(rest: bytes) -> int:
    """How many bytes, of a rest that does not begin with a whole record; 0 for a torn tail."""
    end = _end_of(rest, 0)
    if end > len(rest):
        return len(rest) if _has_whole(rest) else 0
    return end if _end_of_whole(rest, end) else len(rest)


def _has_whole(rest: bytes) -> bool:
    likely = (like.start() - FRAME.size for like in _LIKE_A_RECORD.finditer(rest, FRAME.size))
    return any(_end_of_whole(rest, at) for at in likely)


def _end_of(data: bytes, at: int) -> int:
    """Where the frame that begins there says that it ends; past the data if there is not even a frame."""
    if len(data) < at + FRAME.size:
        return len(data) + 1
    length: int = FRAME.unpack_from(data, at)[0]
    return at + FRAME.size + length


def _end_of_whole(data: bytes, at: int) -> int:
    """0 if no whole record begins there."""
    end = _end_of(data, at)
    if end > len(data) or end == at + FRAME.size:
        return 0
    check: int = FRAME.unpack_from(data, at)[1]
    return end if crc32(memoryview(data)[at + FRAME.size : end]) == check else 0


def _put_aside(path: Path) -> str:
    """Under another name too: the journal removes only its own."""
    name = f"{path.name}{ASIDE}"
    with contextlib.suppress(FileExistsError):
        os.link(path, path.with_name(name))
    return name
