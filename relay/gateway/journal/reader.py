"""Reading the journal: one writer's segments in their sequence, and all writers merged in the order of time.

Within a writer the sequence counts and not the clock, which may be set back: an answer never comes before its request.
"""

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, groupby
from pathlib import Path

from relay.gateway.journal.record_framing import RecordPosition, read_records
from relay.gateway.journal.records import Record, RecordsLost
from relay.gateway.journal.segments import is_of_later_release, is_written, names, writer_of


class JournalReader:
    """Reads what is new in the segments of a folder. The caller stores how far it came, together with the results."""

    def __init__(self, folder: Path, since: Mapping[str, int] | None = None, *, most: int | None = None) -> None:
        self.folder = folder
        self.most = most  # bytes of a record that are held in memory
        self.read_to: dict[str, int] = dict(since or {})
        self.finished: set[str] = set()  # segments without a writer that are read to their end

    def read(self) -> Iterator[tuple[RecordPosition, Record]]:
        there = [name for name in names(self.folder) if name not in self.finished]
        # Before reading: a segment without a writer gets no more records.
        ended = {name for name in there if not is_written(self.folder / name)}
        ended -= {name for name in ended if is_of_later_release(self.folder / name)}
        for place, record in read(self.folder, self.read_to, only=there, ended=ended, most=self.most):
            self.read_to[place.segment] = place.position
            yield place, record
        self.finished |= ended

    def writers_gone(self) -> set[str]:
        """Writers whose segments are all finished. Each begins a segment before it leaves the one before."""
        at_work = {writer_of(name) for name in names(self.folder) if name not in self.finished}
        return {writer_of(name) for name in self.finished} - at_work

    def add(self, segments: Mapping[str, int]) -> None:
        """Segments, with their sizes, that need not be read: the caller knows their content."""
        self.read_to |= segments
        self.finished |= segments.keys()

    def remove_all_but(self, needed: Container[str]) -> None:
        for name in sorted(self.finished):
            if name not in needed:
                (self.folder / name).unlink(missing_ok=True)
                self.finished.discard(name)
                self.read_to.pop(name, None)


def read(
    folder: Path,
    since: Mapping[str, int] | None = None,
    *,
    until: Mapping[str, int] | None = None,
    only: Iterable[str] | None = None,
    ended: Container[str] = (),
    most: int | None = None,
) -> Iterator[tuple[RecordPosition, Record]]:
    """All records from one position to another, in the order of time. `ended` segments have no writer any more."""
    starts, ends = since or {}, until or {}
    of_writers = sorted(names(folder) if only is None else only, key=lambda name: (writer_of(name), name))
    each = [
        [
            read_records(folder / name, starts.get(name, 0), until=ends.get(name), is_ended=name in ended, most=most)
            for name in segments
        ]
        for _writer, segments in groupby(of_writers, writer_of)
    ]
    yield from heapq.merge(
        *map(chain.from_iterable, each),
        # A loss has no time of its own: it comes right behind the writer's record before it. So does a record with an
        # earlier time, after a clock was set back.
        key=lambda found: 0.0 if isinstance(found[1], RecordsLost) else found[1].at,
    )
