"""Bodies of calls, read from the journal before the transaction, and files for those too large to be parsed.

What is larger than `PARLEY_MAX_DIGEST_MB` is never read at once. It is hashed piece by piece, and copied into a file of
its own if its key records everything: a file holds the bytes as they came, unredacted.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal

from history.entries import Gap
from relay.digest import kept_files
from relay.digest.answers import TOO_LARGE, read_answer, unread_answer
from relay.digest.calls import CallPlan, LargeBody, PendingCall, RecordedAnswer
from relay.digest.requests import largest_body
from relay.gateway.journal.record_framing import RecordPosition
from relay.gateway.journal.records import header_size
from relay.gateway.journal.segments import CHUNK

logger = logging.getLogger(__name__)

UNREDACTED = "full"
MOST_HEAD = 256 * 1024
Body = Literal["request", "reply"]
_RECORD_LETTERS: Mapping[Body, tuple[bytes, ...]] = {"request": (b"A",), "reply": (b"P", b"E")}


def largest_record() -> int:
    """A record of more bytes is not held in memory: the largest body that is parsed, and the head of its record."""
    return largest_body() + MOST_HEAD


def read_bodies(folder: Path, call: PendingCall, *, mode: str) -> None:
    """Parse the reply, if the call has ended. Keep what is too large in a file instead, if `mode` allows it."""
    record = call.request.record
    if record.skipped and call.large_request is None:
        call.large_request = keep_large_body(folder, call, "request", mode=mode)
    if call.ended is None or call.answer is not None:
        return
    most = largest_body()
    try:
        if call.received > most:
            call.answer = unread_answer(record, call.ended)
        else:
            reply = b"".join(call.pieces if call.is_held else read_pieces(folder, call, "reply"))
            call.answer = read_answer(record, call.ended, reply, missing=call.missing, most=most)
    except Exception:
        # Of a call that is given up, keep at least how it ended.
        if not call.is_given_up:
            raise
        call.answer = RecordedAnswer(reason=call.ended.reason)
    if call.answer.unread == TOO_LARGE:
        call.large_reply = keep_large_body(folder, call, "reply", mode=mode)


def read_pieces(folder: Path, call: PendingCall, body: Body) -> Iterator[bytes]:
    """The bytes of a request, or of a reply up to its first gap."""
    left = call.received if body == "reply" else sys.maxsize
    for segment, places in call.places.items():
        with (folder / segment).open("rb") as file:
            for place in places:
                for piece in _body_of_record(file.fileno(), place, _RECORD_LETTERS[body]):
                    if piece := piece[:left]:
                        left -= len(piece)
                        yield piece


def _body_of_record(fd: int, place: RecordPosition, letters: tuple[bytes, ...]) -> Iterator[bytes]:
    at = place.payload
    start = os.pread(fd, 64, at)
    if start[:1] not in letters:
        return
    at += header_size(start)
    while at < place.end and (piece := os.pread(fd, min(CHUNK, place.end - at), at)):
        at += len(piece)
        yield piece


def keep_large_body(folder: Path, call: PendingCall, body: Body, *, mode: str) -> LargeBody:
    size, digest = 0, sha256()
    for piece in read_pieces(folder, call, body):
        size += len(piece)
        digest.update(piece)
    name = kept_files.name_of(call.id, body, owner=call.request.record.owner)
    is_kept = mode == UNREDACTED and _copy(folder, call, body, name, size=size)
    return LargeBody(size, digest.hexdigest(), name if is_kept else "")


def _copy(folder: Path, call: PendingCall, body: Body, name: str, *, size: int) -> bool:
    path = folder / name
    try:
        for parent in (path.parent.parent, path.parent):
            parent.mkdir(mode=0o700, exist_ok=True)
        if size > kept_files.free_bytes(folder, without=name):
            logger.error("No space to put the %s of the relayed call %s aside in %s.", body, call.id, path.parent)
            return False
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in read_pieces(folder, call, body):
                file.write(piece)
    except OSError as error:
        logger.error("The %s of the relayed call %s cannot be put aside: %s", body, call.id, error)
        return False
    logger.warning("The %s of the relayed call %s is too large to be read: %s", body, call.id, path)
    return True


def request_gap(plan: CallPlan) -> Gap:
    reason = f"The request is too large to be read: {plan.request.record.skipped:,} bytes"
    return Gap(at=plan.request.at, reason=reason, metadata=_facts(plan.call.large_request))


def reply_gap(plan: CallPlan) -> Gap | None:
    """What is missing of an answer in the session; None if nothing is, or the session would not have it anyway."""
    call = plan.call
    is_in_session = plan.session_id is not None and plan.keeps_texts and not plan.request.side_call
    if not is_in_session or call.ended is None or plan.answer is None:
        return None
    if call.large_reply is not None:
        reason = f"The reply is too large to be read: {call.large_reply.size:,} bytes"
        return Gap(at=plan.request.at, reason=reason, metadata=_facts(call.large_reply))
    if call.missing:
        return Gap(at=plan.request.at, reason=f"{call.missing:,} bytes of the reply were damaged on disk.")
    return None


def _facts(large: LargeBody | None) -> dict[str, object]:
    if large is None:
        return {}
    return {"size": large.size, "sha256": large.sha256, **({"file": large.file} if large.file else {})}
