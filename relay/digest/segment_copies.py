"""Copies of journal records in a segment to be, with frames of their own, under a name that no reader looks for."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import BinaryIO
from uuid import UUID
from zlib import crc32

from relay.digest.calls import PendingCall
from relay.gateway.journal import frames
from relay.gateway.journal.segments import CHUNK, RecordPosition, name_of, number_of, writer_of

SUFFIX = ".carried"


@dataclass(slots=True, kw_only=True)
class SegmentCopy:
    """The segment to be, and where in it each record of each call lies."""

    name: str
    size: int = frames.START
    calls: int = 0
    places: dict[UUID, list[RecordPosition]] = field(default_factory=lambda: defaultdict(list))

    def note(self, exchange: UUID, length: int, *, is_call: bool) -> None:
        place = RecordPosition(self.name, self.size, self.size + frames.FRAME_SIZE + length, frame=frames.FRAME_SIZE)
        self.places[exchange].append(place)
        self.size = place.end
        self.calls += is_call


def copied(folder: Path, records: list[tuple[RecordPosition, PendingCall]]) -> SegmentCopy:
    """These records of one writer, in the order in which it wrote them."""
    records.sort(key=lambda one: (one[0].segment, one[0].start))
    copy = SegmentCopy(name=_free_name(folder, records[-1][0].segment))
    _write(folder / f"{copy.name}{SUFFIX}", records, copy)
    return copy


def publish(folder: Path, name: str) -> None:
    (folder / f"{name}{SUFFIX}").rename(folder / name)


def _write(path: Path, records: list[tuple[RecordPosition, PendingCall]], copy: SegmentCopy) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(frames.heading())
        for segment, here in groupby(records, key=lambda one: one[0].segment):
            with (path.parent / segment).open("rb") as source:
                for place, call in here:
                    _copy_record(source, place, file, copy, exchange=call.id)
        file.seek(frames.COUNTS_AT)
        file.write(frames.pack_counts(copy.size, copy.calls))
        file.flush()
        os.fsync(file.fileno())  # for what it is copied from is removed


def _copy_record(
    source: BinaryIO, place: RecordPosition, target: BinaryIO, copy: SegmentCopy, *, exchange: UUID
) -> None:
    """Read twice, because the checksum comes first and a record may be too large for the memory."""
    length = place.end - place.start - place.frame
    beginning, check = frames.pack_frame(frames.mark_of(copy.name), length=length, position=copy.size, calls=copy.calls)
    is_call = False
    for number, chunk in enumerate(_chunks(source, place)):
        check = crc32(chunk, check)
        is_call = frames.is_call(chunk) if not number else is_call
    target.write(beginning + frames.pack_check(check))
    for chunk in _chunks(source, place):
        target.write(chunk)
    copy.note(exchange, length, is_call=is_call)


def _chunks(source: BinaryIO, place: RecordPosition) -> Iterator[bytes]:
    source.seek(place.start + place.frame)
    left = place.end - place.start - place.frame
    while left:
        chunk = source.read(min(left, CHUNK))
        if not chunk:
            raise OSError(f"{place.segment} is shorter than it was")
        left -= len(chunk)
        yield chunk


def _free_name(folder: Path, newest: str) -> str:
    """Just behind the newest that is copied, and before whatever its writer has begun since."""
    number, writer = number_of(newest) + 1, writer_of(newest)
    while (folder / name_of(number, writer=writer)).exists():
        number += 1
    return name_of(number, writer=writer)
