"""Byte streams of exports: zip archives written without seeking back, gzip, and an async stream from a thread."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from django.db import connections

PIECE = 65_536
# A zip has no times outside these.
EARLIEST, LATEST = datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, tzinfo=UTC)


class _WriteBuffer:
    """A file that can only be written to. `take` empties it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self.pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)


class ZipStream:
    def __init__(self) -> None:
        self.buffer = _WriteBuffer()
        self.zip = ZipFile(self.buffer, "w", ZIP_DEFLATED)  # type: ignore[call-overload]

    def add(self, name: str, pieces: Iterable[bytes], *, at: datetime) -> Iterator[bytes]:
        moment = min(max(at.astimezone(UTC), EARLIEST), LATEST)
        info = ZipInfo(name, moment.timetuple()[:6])
        info.compress_type = ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        with self.zip.open(info, "w", force_zip64=True) as file:
            for piece in pieces:
                file.write(piece)
                if ready := self.buffer.take():
                    yield ready
        yield self.buffer.take()

    def close(self) -> bytes:
        self.zip.close()
        return self.buffer.take()


def join_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Few large pieces: each costs a step between threads."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """gzip without a time in its header: the same export is the same bytes."""
    compressor = zlib.compressobj(wbits=31)
    for piece in pieces:
        if ready := compressor.compress(piece):
            yield ready
    yield compressor.flush()


async def stream_from_thread(pieces: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
    """Run a generator that queries the database in one thread, a step whenever the client is ready for it.

    Django would read a plain generator to its end before the first byte leaves. When the client disconnects, the
    generator is closed.
    """
    context = copy_context()  # among others, the language of the user
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(max_workers=1, thread_name_prefix="export")
    try:
        while (piece := await loop.run_in_executor(pool, lambda: context.run(next, pieces, None))) is not None:
            yield piece
    finally:
        # After the step that may still be running.
        pool.submit(_close, pieces)
        pool.shutdown(wait=False)


def _close(pieces: Generator[bytes, None, None]) -> None:
    try:
        pieces.close()
    finally:
        connections.close_all()
