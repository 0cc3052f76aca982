"""Long calls: their records are copied into a new segment, so that old segments can be removed.

Otherwise one stream of an hour would hold every segment with a piece of it, until the journal is full. What is held of
a writer becomes one segment of that writer, just behind those it is copied from. The copy has a name that no reader
looks for until the position that names it is in the database; then it is renamed and the old segments are removed.
"""

import logging
import os
import time
from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from relay.digest.calls import PendingCall
from relay.gateway.journal import record_framing
from relay.gateway.journal.reader import JournalReader
from relay.gateway.journal.record_framing import RecordPosition
from relay.gateway.journal.segments import CHUNK, name_of, number_of, writer_of
from relay.gateway.journal_settings import most_bytes

logger = logging.getLogger(__name__)

COPY_SUFFIX = ".carried"
MIN_PART = 8  # segments are worth a copy once they hold this part of what the journal may
PAUSE_SECONDS = 10.0

Calls = Collection[PendingCall]
Records = list[tuple[RecordPosition, PendingCall]]


@dataclass(slots=True, kw_only=True)
class SegmentCopy:
    name: str
    size: int = record_framing.START
    calls: int = 0
    places: dict[UUID, list[RecordPosition]] = field(default_factory=lambda: defaultdict(list))

    def add(self, exchange: UUID, length: int, *, is_call: bool) -> None:
        place = RecordPosition(self.name, self.size, self.size + record_framing.FRAME_SIZE + length)
        self.places[exchange].append(place)
        self.size = place.end
        self.calls += is_call


class JournalCompaction:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pause_until = 0.0

    def copy_pending_calls(
        self, calls: Calls, needed: Container[str], reader: JournalReader
    ) -> Collection[SegmentCopy]:
        """The copies of what only pending calls keep from being removed, if those are so many bytes that it matters.

        Calls and reader use them from now on. The caller commits the position, which names them, and publishes them
        after that. If the commit fails, its outcome is unknown: the digester begins again, as after a crash.
        """
        held = {name: reader.read_to.get(name, 0) for name in reader.finished if name in needed}
        is_much = sum(held.values()) > most_bytes() // MIN_PART
        if not is_much or time.monotonic() < self._pause_until:
            return ()
        used_bytes = sum(place.end - place.start for call in calls for place in _within(call, held))
        # At least half is useless, so a copy never costs more than the first writing did.
        copies = self._copy(calls, held) if sum(held.values()) > 2 * used_bytes else {}
        if not copies:
            self._pause_until = time.monotonic() + PAUSE_SECONDS
            return ()
        for call in calls:
            if copy := copies.get(call.writer):
                rest = {segment: places for segment, places in call.places.items() if segment not in held}
                call.places = {copy.name: copy.places[call.id], **rest} if call.id in copy.places else rest
        reader.add({copy.name: copy.size for copy in copies.values()})
        return copies.values()

    def _copy(self, calls: Calls, held: Container[str]) -> dict[str, SegmentCopy]:
        by_writer: Mapping[str, Records] = defaultdict(list)
        for call in calls:
            by_writer[call.writer].extend((place, call) for place in _within(call, held))
        try:
            return {writer: write_copy(self.folder, records) for writer, records in by_writer.items() if records}
        except OSError as error:
            logger.warning("Calls that take long hold the relay's journal, and cannot be carried over: %s", error)
            clean_up(self.folder, ())
            return {}


def clean_up(folder: Path, known: Container[str]) -> None:
    for path in sorted(folder.glob(f"*{COPY_SUFFIX}")):
        name = path.name.removesuffix(COPY_SUFFIX)
        if name in known:
            publish(folder, name)
        else:
            path.unlink()


def publish(folder: Path, name: str) -> None:
    (folder / f"{name}{COPY_SUFFIX}").rename(folder / name)


def _within(call: PendingCall, held: Container[str]) -> Iterator[RecordPosition]:
    for segment, places in call.places.items():
        if segment in held:
            yield from places


def write_copy(folder: Path, records: Records) -> SegmentCopy:
    """Copy these records of one writer, in the order in which it wrote them, with new frames."""
    records.sort(key=lambda one: (one[0].segment, one[0].start))
    copy = SegmentCopy(name=_free_name(folder, records[-1][0].segment))
    path = folder / f"{copy.name}{COPY_SUFFIX}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(record_framing.heading())
        for segment, group in groupby(records, key=lambda one: one[0].segment):
            with (folder / segment).open("rb") as source:
                for place, call in group:
                    _copy_record(source, place, file, copy, call.id)
        file.seek(record_framing.COUNTS_AT)
        file.write(record_framing.pack_counts(copy.size, copy.calls))
        file.flush()
        os.fsync(file.fileno())  # because the original is removed
    return copy


def _copy_record(source: BinaryIO, place: RecordPosition, target: BinaryIO, copy: SegmentCopy, exchange: UUID) -> None:
    """Read twice, because the checksum comes first and a record may be too large for the memory."""
    length, mark, chunks = place.end - place.payload, record_framing.mark_of(copy.name), _chunks(source, place)
    target.write(record_framing.pack_frame(chunks, mark, length=length, position=copy.size, calls=copy.calls))
    target.writelines(_chunks(source, place))
    copy.add(exchange, length, is_call=record_framing.is_call(os.pread(source.fileno(), 1, place.payload)))


def _chunks(source: BinaryIO, place: RecordPosition) -> Iterator[bytes]:
    source.seek(place.payload)
    left = place.end - place.payload
    while left:
        chunk = source.read(min(left, CHUNK))
        if not chunk:
            raise OSError(f"{place.segment} is shorter than it was")
        left -= len(chunk)
        yield chunk


def _free_name(folder: Path, newest: str) -> str:
    """Just behind the newest segment that is copied, and before those that its writer has begun since."""
    number, writer = number_of(newest) + 1, writer_of(newest)
    while (folder / name_of(number, writer=writer)).exists():
        number += 1
    return name_of(number, writer=writer)
