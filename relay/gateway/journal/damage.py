"""Damaged journal segments: the report of what is lost, and a copy of the bytes that cannot be read."""

import logging
import os
from pathlib import Path

from relay.gateway.journal.records import Lost
from relay.gateway.journal.segments import ASIDE

logger = logging.getLogger(__name__)

DAMAGED = "the journal is "
_CHUNK = 1024 * 1024


def is_damage(lost: Lost) -> bool:
    """Whether a reader found it; otherwise its writer reported it."""
    return lost.why.startswith(DAMAGED)


def note_loss(path: Path, start: int, end: int, *, at_position: int, lost: int, calls: int) -> Lost:
    """Log what is lost of a segment, and put the bytes aside that cannot be read."""
    why = f"damaged: {path.name} at byte {at_position}"
    if end > start and (name := _put_aside(path, start, end)):
        why += f", put aside as {name}"
    logger.error("The relay's journal is %s; %d bytes of it are lost.", why, lost)
    return Lost(at=path.stat().st_mtime, calls=calls, lost_bytes=lost, why=f"{DAMAGED}{why}")


def _put_aside(path: Path, start: int, end: int) -> str:
    """Copy these bytes to a file with the time of the segment. Empty if the disk is full."""
    copy = path.with_name(f"{path.name}.{start}{ASIDE}")
    try:
        fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with path.open("rb") as source, os.fdopen(fd, "wb") as target:
            source.seek(start)
            for at in range(start, end, _CHUNK):
                target.write(source.read(min(_CHUNK, end - at)))
        written_at = path.stat().st_mtime
        os.utime(copy, (written_at, written_at))
    except OSError as error:
        logger.error("Damaged bytes of %s cannot be put aside: %s", path.name, error)
        return ""
    return copy.name
