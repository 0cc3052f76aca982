"""The relay's journal: what every call was and what came back, on disk before anybody waits for a database.

One segment at a time per process, appended to by plain writes: they are safe against the death of the process and cost
tens of microseconds. Nothing in here ever raises to the caller or waits: a full disk or a full journal is counted in
`Journal.lost`, the call goes on, and once there is room again the journal itself says what it missed.

Reply bytes are gathered for a quarter of a second or 64 KB. The recording mode of the key is obeyed here, before
anything is on disk: `off` writes nothing, `metadata` no byte of a request or a reply, `no_replies` none of a reply.
To be used from one thread, that of the event loop; without a running loop, bytes are flushed when the next ones come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from relay.gateway import segments
from relay.gateway.records import CREDENTIALS, Accepted, Ended, Lost, ReplyBytes, to_bytes
from relay.gateway.segments import bytes_in, frame, read

__all__ = ["Journal", "Losses", "read"]

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.25
GATHER_BYTES = 64 * 1024
SEGMENT_BYTES = 16 * 1024 * 1024
# A segment in which nothing is under way is closed so soon, so that what it holds can be removed once it is digested;
# any other after so long.
IDLE_SECONDS = 5.0
SEGMENT_SECONDS = 60.0
MEASURE_SECONDS = 1.0
MOST_BYTES = 1024 * 1024 * 1024
# Ends that could not be written are short; so many are kept until there is room.
MOST_OWED = 1_000
# How many pieces the kernel takes in one write.
MOST_PIECES = 500

NOTHING = "off"
WITHOUT_BODIES = "metadata"
WITHOUT_REPLIES = ("metadata", "no_replies")


@dataclass(slots=True)
class Losses:
    """What could not be kept since the process began."""

    calls: int = 0
    lost_bytes: int = 0
    why: str = ""


@dataclass(slots=True)
class _Open:
    """An exchange that is under way: what of its reply waits to be written, and whether a piece was lost."""

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
        self.lost = Losses()
        self._open: dict[int, _Open] = {}  # by the exchange's number, which is found sooner than its UUID
        self._owed: list[bytes] = []
        self._untold = Losses()
        self._writer = ""
        self._fd = -1
        self._pid = 0
        self._begun = 0.0
        self._length = 0
        self._room = 0
        self._measured = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def untold(self) -> Losses:
        """What was lost since the journal could last say so."""
        return self._untold

    def accept(self, record: Accepted) -> bool:
        """Write that a call is about to be sent. False if it is not recorded: by its mode, or because it was lost."""
        if record.recording == NOTHING:
            return False
        size = record.body_size or len(record.body)
        headers = [(name, value) for name, value in record.headers if name.lower() not in CREDENTIALS]
        body = b"" if record.recording == WITHOUT_BODIES else record.body
        if not self._write(frame(to_bytes(record, headers=headers, body=body, body_size=size))):
            self._lose_call(len(body))
            return False
        keeps_reply = record.recording not in WITHOUT_REPLIES
        self._open[record.exchange.int] = _Open(exchange=record.exchange, keeps_reply=keeps_reply)
        self._wake()
        return True

    def reply(self, exchange: UUID, data: bytes) -> None:
        """Bytes of the reply, as they came. Those of an exchange that is not recorded are passed over."""
        under_way = self._open.get(exchange.int)
        if under_way is None or not data:
            return
        under_way.size += len(data)
        if not under_way.keeps_reply:
            return
        if under_way.lost:
            # What is kept of a reply is its beginning without a hole.
            self._lose(under_way, len(data))
            return
        now = time.monotonic()
        under_way.since = under_way.since if under_way.pieces else now
        under_way.pieces.append(data)
        under_way.waiting += len(data)
        if under_way.waiting >= GATHER_BYTES or now - under_way.since >= GATHER_SECONDS:
            self._flush(under_way)

    def end(self, record: Ended) -> None:
        """Write how it ended, with whatever of the reply was still waiting. A second end of the same is passed over."""
        under_way = self._open.pop(record.exchange.int, None)
        if under_way is None:
            return
        gathered = _gathered(under_way)
        if not self._write([*gathered, *_framed_end(record, under_way)]):
            self._lose(under_way, under_way.waiting)
            end = _framed_end(record, under_way)
            if not self._write(end) and len(self._owed) < 2 * MOST_OWED:
                self._owed += end

    def flush(self) -> None:
        """Write all bytes that are waiting, however few."""
        for under_way in self._open.values():
            self._flush(under_way)

    def close(self) -> None:
        """Leave the segment to its readers. The journal may be used again: it begins another one."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._close_segment()

    # Writing

    def _flush(self, under_way: _Open) -> None:
        gathered = _gathered(under_way)
        if gathered and not self._write(gathered):
            self._lose(under_way, under_way.waiting)
        under_way.pieces.clear()
        under_way.waiting = 0

    def _write(self, pieces: list[bytes]) -> bool:
        """All of them or none."""
        size = sum(map(len, pieces))
        try:
            if not self._has_room(size):
                raise OSError(f"the journal holds its {self.most_bytes} bytes already")
            self._append(pieces, size)
        except OSError as error:
            self._note(str(error))
            return False
        if self._owed or self._untold.why:
            self._catch_up()
        return True

    def _append(self, pieces: list[bytes], size: int) -> None:
        if self._pid != os.getpid() or self._length + size > SEGMENT_BYTES:
            self._begin_segment()
        try:
            _write_all(self._fd, pieces, size)
        except OSError:
            self._cut_back()
            raise
        self._length += size
        self._room -= size

    def _cut_back(self) -> None:
        """Half a record must not stand before whole ones: take it away, or leave this segment to its torn end."""
        try:
            os.ftruncate(self._fd, self._length)
        except OSError:
            self._close_segment()

    def _begin_segment(self) -> None:
        """The new one before the old one is left: a reader takes a writer without any for dead."""
        if not self._writer.startswith(f"{os.getpid()}-"):
            self._writer = segments.new_writer()
        fd = segments.create(self.folder, writer=self._writer)[1]
        self._close_segment()
        self._fd, self._pid, self._begun, self._length = fd, os.getpid(), time.monotonic(), len(segments.MAGIC)

    def _close_segment(self) -> None:
        # After a fork the file is the parent's: its copy of the descriptor is only closed here.
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._pid = -1, 0

    def _has_room(self, size: int) -> bool:
        now = time.monotonic()
        if now - self._measured > (MEASURE_SECONDS if self._room >= size else MEASURE_SECONDS / 4):
            self._room, self._measured = self.most_bytes - bytes_in(self.folder), now
        return self._room >= size

    # What could not be written

    def _lose(self, under_way: _Open, size: int) -> None:
        """Its end will say so."""
        under_way.lost += size
        self.lost.lost_bytes += size

    def _lose_call(self, size: int) -> None:
        for counted in (self.lost, self._untold):
            counted.calls += 1
            counted.lost_bytes += size

    def _note(self, why: str) -> None:
        if not self._untold.why:
            logger.error("The relay's journal cannot be written, and what it loses is counted: %s", why)
        self.lost.why = self._untold.why = why

    def _catch_up(self) -> None:
        """There is room again: the ends that are owed, then what was missed."""
        owed, self._owed = self._owed, []
        untold, self._untold = self._untold, Losses()
        told = Lost(at=time.time(), calls=untold.calls, lost_bytes=untold.lost_bytes, why=untold.why)
        if self._write([*owed, *frame(to_bytes(told))] if untold.calls else owed):
            logger.warning(
                "The relay's journal is written again: %d calls, %d bytes lost.", told.calls, told.lost_bytes
            )
        else:
            self._owed, self._untold = owed, untold

    # Time

    def _wake(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_later(GATHER_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.flush()
        age = time.monotonic() - self._begun
        if not self._open and age >= IDLE_SECONDS:
            self._close_segment()
        elif age >= SEGMENT_SECONDS and self._fd >= 0:
            with contextlib.suppress(OSError):
                self._begin_segment()
        if self._open or self._fd >= 0:
            self._wake()


def _gathered(under_way: _Open) -> list[bytes]:
    if not under_way.pieces:
        return []
    return frame(to_bytes(ReplyBytes(exchange=under_way.exchange, at=time.time(), data=b"".join(under_way.pieces))))


def _framed_end(record: Ended, under_way: _Open) -> list[bytes]:
    return frame(to_bytes(record, reply_size=under_way.size, lost_bytes=record.lost_bytes + under_way.lost))


def _write_all(fd: int, pieces: list[bytes], size: int) -> None:
    written = os.writev(fd, pieces) if len(pieces) <= MOST_PIECES else 0
    if written < size:
        # Rare: a disk that is nearly full, or a great many ends at once.
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(fd, rest) :]
