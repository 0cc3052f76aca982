"""Records of the journal, copied as they are into a segment to be: under a name that no reader looks for."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from uuid import UUID

from relay.gateway.digest.plans import Under
from relay.gateway.segments import MAGIC, Place, name_of, number_of, writer_of

SUFFIX = ".carried"


@dataclass(slots=True, kw_only=True)
class Copy:
    """The segment to be, and where in it each record of each call lies."""

    name: str
    size: int = len(MAGIC)
    places: dict[UUID, list[Place]] = field(default_factory=lambda: defaultdict(list))

    def note(self, exchange: UUID, size: int) -> None:
        self.places[exchange].append(Place(self.name, self.size, self.size + size))
        self.size += size


def copied(folder: Path, records: list[tuple[Place, Under]]) -> Copy:
    """These records of one writer, in the order in which it wrote them."""
    records.sort(key=lambda one: (one[0].segment, one[0].start))
    copy = Copy(name=_free_name(folder, records[-1][0].segment))
    _write(folder / f"{copy.name}{SUFFIX}", records, copy)
    return copy


def publish(folder: Path, name: str) -> None:
    (folder / f"{name}{SUFFIX}").rename(folder / name)


def _write(path: Path, records: list[tuple[Place, Under]], copy: Copy) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(MAGIC)
        for call, record in _read(path.parent, records):
            file.write(record)
            copy.note(call.id, len(record))
        file.flush()
        os.fsync(file.fileno())  # for what it is copied from is removed


def _read(folder: Path, records: list[tuple[Place, Under]]) -> Iterator[tuple[Under, bytes]]:
    for segment, here in groupby(records, key=lambda one: one[0].segment):
        with (folder / segment).open("rb") as file:
            for place, call in here:
                file.seek(place.start)
                record = file.read(place.end - place.start)
                if len(record) < place.end - place.start:
                    raise OSError(f"{segment} is shorter than it was")
                yield call, record


def _free_name(folder: Path, newest: str) -> str:
    """Just behind the newest that is copied, and before whatever its writer has begun since."""
    number, writer = number_of(newest) + 1, writer_of(newest)
    while (folder / name_of(number, writer=writer)).exists():
        number += 1
    return name_of(number, writer=writer)
