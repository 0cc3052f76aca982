"""An export of sessions: permission check, audit event, and the stream of bytes with its zip archive and gzip."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from history.access.permissions import Viewer
from history.exporting.selection import CannotExport, ChangePoint, ChosenSessions, ExportCursor, Selection, horizon
from history.formats.base import Note, Notes
from history.formats.jsonl import JsonlWriter
from history.formats.jsonl.lines import time_text
from history.formats.writers import EXPORTERS, Exporter
from history.models import Session

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
    """Make few large pieces: each costs a step between threads."""
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
        pool.submit(_close, pieces)  # after the step that may still be running
        pool.shutdown(wait=False)


def _close(pieces: Generator[bytes, None, None]) -> None:
    try:
        pieces.close()
    finally:
        connections.close_all()


REPORT = "loss-report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """`cursor` is where the next export continues; empty without a cursor in the request."""

    format: str
    sessions: int
    bytes: int
    notes: tuple[Note, ...] = ()
    cursor: str = ""


class Export:
    """Read it once: with `async for`, or `pieces()` where there is no event loop."""

    def __init__(
        self, exporter: Exporter, chosen: ChosenSessions, *, cursor: ExportCursor | None, compress: bool
    ) -> None:
        self.exporter, self.chosen, self.cursor = exporter, chosen, cursor
        self.is_compressed = compress and not self.is_archive
        self.notes = Notes()
        self.done = 0  # sessions
        self.bytes = 0
        self._begun = timezone.now()
        self._only = chosen.only()

    @property
    def is_archive(self) -> bool:
        return not self.exporter.one_file and len(self.chosen) != 1

    @property
    def file_name(self) -> str:
        if self._only is not None:
            name = self.exporter.name_of(self._only).rpartition("/")[2]
        else:
            name = f"parley-{self._begun:%Y%m%d-%H%M%S}{'.zip' if self.is_archive else self.exporter.suffix}"
        return f"{name}.gz" if self.is_compressed else name

    @property
    def content_type(self) -> str:
        """Texts name UTF-8: many clients read a text without a charset as Latin-1, or guess."""
        if self.is_compressed:
            return "application/gzip"
        return "application/zip" if self.is_archive else f"{self.exporter.media_type}; charset=utf-8"

    @property
    def report(self) -> ExportReport:
        """Complete once everything was read."""
        cursor = "" if self.cursor is None else str(ExportCursor(self._ends()))
        notes = self.notes.as_tuple()
        return ExportReport(format=self.exporter.name, sessions=self.done, bytes=self.bytes, notes=notes, cursor=cursor)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return stream_from_thread(self.pieces())

    def pieces(self) -> Generator[bytes, None, None]:
        """The bytes, some tens of kilobytes at a time."""
        if self.exporter.write is None:
            written = self._lines()
        elif self.is_archive:
            written = self._archive()
        else:
            contents = (piece for session in self._sessions() for piece in self._content(session))
            written = chain([self.exporter.head], contents)
        pieces = join_pieces(written)
        yield from self._count_bytes(compress(pieces) if self.is_compressed else pieces)

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Names and contents for a folder: read each before the next."""
        for session in self._sessions():
            yield self.exporter.name_of(session), self._count_bytes(self._content(session))

    def _count_bytes(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.bytes += len(piece)
            yield piece

    def _lines(self) -> Iterator[bytes]:
        """Parley's own format. With a cursor, each session has the cursor to resume from, and deletions are listed."""
        writer, cursor = JsonlWriter(notes=self.notes), self.cursor
        yield writer.head()
        for session in self._sessions():
            resume = {"cursor": str(replace(cursor, after=session.pk))} if cursor else {}
            yield from writer.session(session, **resume)
        yield from writer.loose_exchanges(self.chosen.loose_exchanges(since=cursor.since.at if cursor else None))
        if cursor is None:
            if self.chosen.is_everything:
                yield from writer.sections()
            yield writer.end()
            return
        for session_id, at in self.chosen.deleted(since=cursor.since, until=self._ends()):
            yield writer.deleted(session_id, time_text(at) or "")
        yield writer.end(cursor=str(ExportCursor(self._ends())))

    def _ends(self) -> ChangePoint:
        assert self.cursor is not None
        assert self.cursor.ends is not None
        return self.cursor.ends

    def _archive(self) -> Iterator[bytes]:
        archive = ZipStream()
        for session in self._sessions():
            name = self.exporter.name_of(session)
            yield from archive.add(name, self._content(session), at=session.last_activity_at)
        report = json.dumps(asdict(self.report), ensure_ascii=False, indent=2).encode()
        yield from archive.add(REPORT, [report], at=self._begun)
        yield archive.close()

    def _content(self, session: Session) -> Iterator[bytes]:
        assert self.exporter.write is not None
        return self.exporter.write(session, self.notes)

    def _sessions(self) -> Iterator[Session]:
        for session in self.chosen:
            yield session
            self.done += 1


def begin(
    viewer: Viewer | None,
    selection: Selection,
    format: str,
    *,
    since: str | None = None,
    reason: str = "",
    compress: bool = False,
) -> Export:
    """Check the permission and record the audit event. Raises CannotExport, NotPermitted or ReasonNeeded."""
    exporter = EXPORTERS.get(format)
    if exporter is None:
        raise CannotExport(f"unknown format {format!r}: choose from {', '.join(EXPORTERS)}")
    cursor: ExportCursor | None = None
    if since is not None:
        try:
            cursor = ExportCursor.parse(since)
        except ValueError as error:
            raise CannotExport(str(error)) from error
        if cursor.ends is None:  # the end of this export is fixed before anything is read
            cursor = replace(cursor, ends=horizon())
    chosen = ChosenSessions(viewer, selection, cursor=cursor or ExportCursor(), reason=reason)
    chosen.record_event(format=format, **({} if since is None else {"since": since}))
    return Export(exporter, chosen, cursor=cursor, compress=compress)


begin_async = sync_to_async(begin)
