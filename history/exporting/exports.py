"""An export of sessions: permission check, audit event and stream of bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from history.access.permissions import Viewer
from history.exporting.archives import ZipStream
from history.exporting.cursors import ExportCursor, Mark, horizon
from history.exporting.selection import (
    CannotExport,
    ChosenSessions,
    Selection,
    deleted_since,
    has_everything,
    loose_exchanges,
)
from history.exporting.threads import stream_from_thread
from history.formats.base import Note, Notes
from history.formats.exporters import EXPORTERS, Exporter
from history.formats.jsonl import JsonlWriter
from history.formats.jsonl.lines import time_text
from history.models import Session

PIECE = 65_536
REPORT = "loss-report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """`cursor` is where the next export goes on; empty where none was asked for."""

    format: str
    sessions: int
    bytes: int
    notes: tuple[Note, ...] = ()
    cursor: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"notes": [asdict(note) for note in self.notes]}


class Export:
    """Made once, read once: `async for`, or `pieces()` where there is no event loop."""

    def __init__(
        self, exporter: Exporter, chosen: ChosenSessions, *, cursor: ExportCursor | None, compress: bool
    ) -> None:
        self.exporter, self.chosen, self.cursor, self.compress = exporter, chosen, cursor, compress
        self.notes = Notes()
        self.done = 0  # sessions
        self.bytes = 0
        self._begun = timezone.now()
        self._only = chosen.only()

    @property
    def is_archive(self) -> bool:
        """One file for each session, and not exactly one session."""
        return not self.exporter.one_file and len(self.chosen) != 1

    @property
    def file_name(self) -> str:
        if self._only is not None:
            name = self.exporter.name_of(self._only).rpartition("/")[2]
        else:
            name = f"parley-{self._begun:%Y%m%d-%H%M%S}{'.zip' if self.is_archive else self.exporter.suffix}"
        return f"{name}.gz" if self.compress else name

    @property
    def content_type(self) -> str:
        """Texts say that they are UTF-8: many clients read a text without a charset as Latin-1, or guess."""
        if self.compress:
            return "application/gzip"
        return "application/zip" if self.is_archive else f"{self.exporter.media_type}; charset=utf-8"

    @property
    def report(self) -> ExportReport:
        """Whole once everything was read."""
        ends = "" if self.cursor is None else str(ExportCursor(self._ends()))
        notes = self.notes.as_tuple()
        return ExportReport(format=self.exporter.name, sessions=self.done, bytes=self.bytes, notes=notes, cursor=ends)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return stream_from_thread(self.pieces())

    def pieces(self) -> Generator[bytes, None, None]:
        """The bytes, some tens of kilobytes at a time."""
        pieces = _joined(self._written())
        yield from self._counted(_compressed(pieces) if self.compress else pieces)

    def _counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.bytes += len(piece)
            yield piece

    def _written(self) -> Iterator[bytes]:
        if self.exporter.write is None:
            return self._lines()
        if self.is_archive:
            return self._files()
        return self._one_after_the_other()

    def _lines(self) -> Iterator[bytes]:
        """Our own format. With a cursor, each session says from where to go on, and what was deleted is told."""
        writer = JsonlWriter(notes=self.notes)
        yield writer.head()
        for session in self._sessions():
            yield from writer.session(session, **self._place(session))
        yield from writer.loose_exchanges(
            loose_exchanges(self.chosen, since=self.cursor.since if self.cursor else None)
        )
        if self.cursor is not None:
            for session_id, at in deleted_since(self.chosen, since=self.cursor.since, until=self._ends()):
                yield writer.deleted(session_id, time_text(at) or "")
        elif self.chosen.selection.is_everything and has_everything(self.chosen.viewer):
            yield from writer.sections()
        yield writer.end(**{} if self.cursor is None else {"cursor": str(ExportCursor(self._ends()))})

    def _place(self, session: Session) -> dict[str, str]:
        return {} if self.cursor is None else {"cursor": str(self.cursor.at(session.pk))}

    def _ends(self) -> Mark:
        assert self.cursor is not None
        assert self.cursor.ends is not None
        return self.cursor.ends

    def _one_after_the_other(self) -> Iterator[bytes]:
        yield self.exporter.head
        for session in self._sessions():
            yield from self._content(session)

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """One after the other, for a folder: read each before the next."""
        for session in self._sessions():
            yield self.exporter.name_of(session), self._counted(self._content(session))

    def _files(self) -> Iterator[bytes]:
        archive = ZipStream()
        for session in self._sessions():
            name = self.exporter.name_of(session)
            yield from archive.add(name, self._content(session), at=session.last_activity_at)
        report = json.dumps(self.report.to_json(), ensure_ascii=False, indent=2).encode()
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
    """Look whether it may be done, and tell the audit chain. Raises CannotExport, NotPermitted or ReasonNeeded."""
    exporter = EXPORTERS.get(format)
    if exporter is None:
        raise CannotExport(f"there is no format {format!r}: take one of {', '.join(EXPORTERS)}")
    cursor = None if since is None else _cursor(since)
    chosen = ChosenSessions(viewer, selection, cursor=cursor or ExportCursor(), reason=reason)
    if compress and not exporter.one_file and len(chosen) != 1:
        compress = False  # a zip is compressed already
    chosen.tell(format=format, **{} if since is None else {"since": since})
    return Export(exporter, chosen, cursor=cursor, compress=compress)


async def prepare(viewer: Viewer | None, selection: Selection, format: str, **how: Any) -> Export:
    """The same from the event loop."""
    return await sync_to_async(begin)(viewer, selection, format, **how)


async def stream(
    viewer: Viewer | None,
    selection: Selection,
    format: str,
    *,
    since: str | None = None,
    reason: str = "",
) -> AsyncIterator[bytes]:
    async for piece in await prepare(viewer, selection, format, since=since, reason=reason):
        yield piece


def _cursor(text: str) -> ExportCursor:
    """Where to go on; where this export will have ended is settled before anything is read."""
    try:
        cursor = ExportCursor.read(text)
    except ValueError as error:
        raise CannotExport(str(error)) from error
    return cursor if cursor.ends is not None else replace(cursor, ends=horizon())


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Few large pieces: each costs a step between threads."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting and size:
        yield b"".join(waiting)


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """gzip, without a time in its head: the same export is the same bytes."""
    squeeze = zlib.compressobj(wbits=31)
    for piece in pieces:
        if ready := squeeze.compress(piece):
            yield ready
    yield squeeze.flush()
