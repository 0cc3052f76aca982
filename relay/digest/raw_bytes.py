"""Raw bytes of relayed requests and replies, read from the journal again, and files for those too large to be parsed.

The digester holds little of a call in memory: the beginning of a small reply, and where in the journal the rest is.
What is larger than `PARLEY_MAX_DIGEST_MB` is never read at once. Its size and hash are taken piece by piece, and it is
copied into a file of its own if its key records everything: a file holds the bytes as they came, unredacted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal

from relay.digest import files_aside
from relay.digest.calls import LargeBody, PendingCall
from relay.digest.requests import largest_body
from relay.gateway.journal.records import head_size
from relay.gateway.journal.segments import CHUNK, RecordPosition

logger = logging.getLogger(__name__)

UNREDACTED = "full"
MOST_HEAD = 256 * 1024
What = Literal["request", "reply"]


def largest_record() -> int:
    """A record of more bytes is not held in memory: the largest body that is parsed, and the head of its record."""
    return largest_body() + MOST_HEAD


def pieces_of(folder: Path, call: PendingCall, what: What) -> Iterator[bytes]:
    """The bytes of a request, or of a reply, as far as they come without a gap."""
    left = call.received if what == "reply" else None
    for segment, places in call.places.items():
        with (folder / segment).open("rb") as file:
            for place in places:
                for piece in _behind_head(file.fileno(), place, b"A" if what == "request" else b"RPE"):
                    if left is not None:
                        piece = piece[:left]
                        left -= len(piece)
                    if piece:
                        yield piece


def _behind_head(fd: int, place: RecordPosition, letters: bytes) -> Iterator[bytes]:
    at = place.start + place.frame
    start = os.pread(fd, 64, at)
    if start[:1] not in [bytes([letter]) for letter in letters]:
        return
    at += head_size(start)
    while at < place.end and (piece := os.pread(fd, min(CHUNK, place.end - at), at)):
        at += len(piece)
        yield piece


def put_aside(folder: Path, call: PendingCall, what: What, *, mode: str) -> LargeBody:
    """Size and hash of a body that is too large to be parsed, and a copy of it where the key's mode allows that."""
    size, digest = 0, sha256()
    for piece in pieces_of(folder, call, what):
        size += len(piece)
        digest.update(piece)
    name = files_aside.name_of(call.id, what, owner=call.asked.record.owner)
    is_kept = mode == UNREDACTED and _copy(folder, call, what, name, size=size)
    return LargeBody(size, digest.hexdigest(), name if is_kept else "")


def _copy(folder: Path, call: PendingCall, what: What, name: str, *, size: int) -> bool:
    path = folder / name
    try:
        for place in (path.parent.parent, path.parent):
            place.mkdir(mode=0o700, exist_ok=True)
        if size > files_aside.room_left(folder, without=name):
            logger.error("No room to put the %s of the relayed call %s aside in %s.", what, call.id, path.parent)
            return False
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in pieces_of(folder, call, what):
                file.write(piece)
    except OSError as error:
        logger.error("The %s of the relayed call %s cannot be put aside: %s", what, call.id, error)
        return False
    logger.warning("The %s of the relayed call %s is too large to be read: %s", what, call.id, path)
    return True
