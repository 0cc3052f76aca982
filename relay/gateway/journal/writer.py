"""Writer of the relay's journal: every call and its reply, on disk without a database.

One segment at a time per process, appended to by plain writes: they are safe against the death of the process and cost
tens of microseconds. Nothing in here ever raises to the caller or waits: a full disk or a full journal is counted in
`Journal.unreported`, the call continues, and once there is space again the journal itself reports the loss.

The recording mode of the key is obeyed here, before anything is on disk: `off` writes nothing, `metadata` no byte of a
request or a reply, `no_replies` none of a reply. To be used from one thread, that of the event loop; without a running
loop, bytes are flushed when the next ones come.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from relay.gateway.journal import record_framing, segments
from relay.gateway.journal.record_framing import Payload
from relay.gateway.journal.records import CallAccepted, CallEnded, RecordsLost, encode_header, encode_reply_header
from relay.gateway.journal.segments import bytes_in

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.25
GATHER_BYTES = 64 * 1024
SEGMENT_BYTES = 16 * 1024 * 1024
# Idle segments are closed early, so that they can be removed once they are digested; others after SEGMENT_SECONDS.
IDLE_SECONDS = 5.0
SEGMENT_SECONDS = 60.0
MEASURE_SECONDS = 1.0
MOST_BYTES = 1024 * 1024 * 1024
MOST_OWED = 1_000  # ends that could not be written are short; so many are kept until there is space
MOST_PIECES = 500  # how many pieces the kernel takes in one write

_this_process = os.getpid()  # `os.getpid` takes a system call


def _note_fork() -> None:
    global _this_process
    _this_process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)

NOTHING = "off"
WITHOUT_BODIES = "metadata"
WITHOUT_REPLIES = ("metadata", "no_replies")


@dataclass(slots=True)
class Losses:
    """What could not be kept since the journal last reported it."""

    calls: int = 0
    lost_bytes: int = 0
    why: str = ""


@dataclass(slots=True)
class _Open:
    """A running exchange: the part of its reply that waits to be written, and how much was lost."""

    exchange: UUID
    keeps_reply: bool
    pieces: list[bytes] = field(default_factory=list)
    waiting: int = 0
    since: float = 0.0
    size: int = 0
    lost: int = 0


class Journal:
    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._open: dict[int, _Open] = {}  # by the exchange's number, which is found sooner than its UUID
        self._owed: list[Payload] = []
        self.unreported = Losses()
        self._writer = ""
        self._segment = ""
        self._fd = -1
        self._pid = 0
        self._begun = 0.0
        self._length = self._calls = 0
        self._mark = b""
        self._available = 0
        self._measured = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def accept(self, record: CallAccepted, body: bytes = b"") -> bool:
        """Write that a call is about to be sent. False if it is not recorded, by its mode or because it is lost."""
        mode = record.recording
        if mode == NOTHING:
            return False
        if mode == WITHOUT_BODIES:
            body = b""
        if not self._write((encode_header(record), body)):
            self.unreported.calls += 1
            self.unreported.lost_bytes += len(body)
            return False
        self._open[record.exchange.int] = _Open(record.exchange, mode not in WITHOUT_REPLIES)
        self._wake()
        return True

    def reply(self, exchange: UUID, data: bytes) -> None:
        """Bytes of the reply, as they came. Those of exchanges that are not recorded are ignored."""
        under_way = self._open.get(exchange.int)
        if under_way is None or not data:
            return
        under_way.size += len(data)
        if not under_way.keeps_reply:
            return
        if under_way.lost:
            # Only the beginning of a reply without a hole is kept.
            under_way.lost += len(data)
            return
        now = time.monotonic()
        under_way.since = under_way.since if under_way.pieces else now
        under_way.pieces.append(data)
        under_way.waiting += len(data)
        if under_way.waiting >= GATHER_BYTES or now - under_way.since >= GATHER_SECONDS:
            self._flush(under_way)

    def end(self, record: CallEnded) -> None:
        """Write how it ended, with the rest of the reply. A second end is ignored."""
        under_way = self._open.pop(record.exchange.int, None)
        if under_way is None:
            return
        if not self._write(_end(record, under_way)):
            under_way.lost += under_way.waiting
            under_way.pieces.clear()
            end = _end(record, under_way)
            if not self._write(end) and len(self._owed) < MOST_OWED:
                self._owed.append(end)

    def flush(self) -> None:
        for under_way in self._open.values():
            self._flush(under_way)

    def close(self) -> None:
        """Leave the segment to its readers. The journal may be used again: it begins another one."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._close_segment()

    def _flush(self, under_way: _Open) -> None:
        if under_way.pieces:
            head = encode_reply_header(under_way.exchange, time.time(), offset=under_way.size - under_way.waiting)
            if not self._write((head, b"".join(under_way.pieces))):
                under_way.lost += under_way.waiting
        under_way.pieces.clear()
        under_way.waiting = 0

    def _write(self, payload: Payload) -> bool:
        """All of it or nothing; after an outage also what is owed."""
        if not self._try([payload]):
            return False
        if self._owed or self.unreported.why:
            self._catch_up()
        return True

    def _try(self, payloads: list[Payload]) -> bool:
        size = sum(record_framing.FRAME_SIZE + len(head) + len(behind) for head, behind in payloads)
        try:
            if self._available < size or time.monotonic() - self._measured > MEASURE_SECONDS:
                self._measure(size)
            if self._pid != _this_process or self._length + size > SEGMENT_BYTES:
                self._begin_segment()
            self._append(payloads, size)
        except OSError as error:
            if not self.unreported.why:
                logger.error("The relay's journal cannot be written, and what it loses is counted: %s", error)
            self.unreported.why = str(error)
            return False
        self._available -= size
        return True

    def _append(self, payloads: list[Payload], size: int) -> None:
        pieces: list[bytes] = []
        position, calls = self._length, self._calls
        for payload in payloads:
            length = len(payload[0]) + len(payload[1])
            pieces += (
                record_framing.pack_frame(payload, self._mark, length=length, position=position, calls=calls),
                *payload,
            )
            position += record_framing.FRAME_SIZE + length
            calls += record_framing.is_call(payload[0])
        try:
            written = os.pwritev(self._fd, pieces, self._length) if len(pieces) <= MOST_PIECES else 0
            if written < size:
                # Rare: a disk that is nearly full, or a great many ends at once.
                rest = memoryview(b"".join(pieces))[written:]
                while rest:
                    rest = rest[os.pwrite(self._fd, rest, position - len(rest)) :]
        except OSError:
            try:  # remove half a record, because whole ones follow; or else leave this segment
                os.ftruncate(self._fd, self._length)
            except OSError:
                self._close_segment()
            raise
        self._length, self._calls = position, calls
        with contextlib.suppress(OSError):  # the records are there: a reader only cannot tell if they are cut off later
            os.pwrite(self._fd, record_framing.pack_counts(position, calls), record_framing.COUNTS_AT)

    def _begin_segment(self) -> None:
        """The new one first: for a reader, a writer without a segment is dead."""
        if not self._writer.startswith(f"{_this_process}-"):
            self._writer, self._segment = f"{_this_process}-{secrets.token_hex(4)}", ""
        self._segment, fd = segments.create(
            self.folder, record_framing.heading(), writer=self._writer, after=self._segment
        )
        self._close_segment()
        self._fd, self._pid, self._begun = fd, _this_process, time.monotonic()
        self._length, self._calls, self._mark = record_framing.START, 0, record_framing.mark_of(self._segment)

    def _close_segment(self) -> None:
        # After a fork the file is the parent's: its copy of the descriptor is only closed here.
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._pid = -1, 0

    def _measure(self, size: int) -> None:
        now = time.monotonic()
        if now - self._measured > (MEASURE_SECONDS if self._available >= size else MEASURE_SECONDS / 4):
            self._available, self._measured = self.most_bytes - bytes_in(self.folder), now
        if self._available < size:
            raise OSError(f"the journal holds its {self.most_bytes} bytes already")

    def _catch_up(self) -> None:
        """Write the ends that are owed, then what was lost."""
        lost = self.unreported
        record = RecordsLost(at=time.time(), calls=lost.calls, lost_bytes=lost.lost_bytes, why=lost.why)
        if self._try([*self._owed, (encode_header(record), b"")] if lost.calls else self._owed):
            self._owed, self.unreported = [], Losses()
            text = "The relay's journal is written again: %d calls, %d bytes lost."
            logger.warning(text, lost.calls, lost.lost_bytes)

    def _wake(self) -> None:
        if self._timer is not None and self._loop is not None and self._loop.is_running():
            return
        with contextlib.suppress(RuntimeError):  # there is no loop
            self._loop = asyncio.get_running_loop()
            self._timer = self._loop.call_later(GATHER_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.flush()
        if self._owed or self.unreported.why:
            self._catch_up()
        age = time.monotonic() - self._begun
        # While the end of a call is owed it is not idle: a reader takes a call without an end for lost.
        if not self._open and not self._owed and age >= IDLE_SECONDS:
            self._close_segment()
        elif age >= SEGMENT_SECONDS and self._fd >= 0:
            with contextlib.suppress(OSError):
                self._begin_segment()
        if self._open or self._fd >= 0:
            self._wake()


def _end(record: CallEnded, under_way: _Open) -> Payload:
    if under_way.lost or record.reply_size != under_way.size:
        record = replace(record, reply_size=under_way.size, lost_bytes=record.lost_bytes + under_way.lost)
    return encode_header(record), b"".join(under_way.pieces)
