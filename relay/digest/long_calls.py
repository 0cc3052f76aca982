"""Calls that take long are carried over: what the journal tells of them is copied into a segment of their own.

Otherwise one stream of an hour would hold every segment in which it said a word, and with them all that is digested
long since, until the journal is full. What is held of a writer becomes one segment with the same writer in its name,
just behind those it is copied from: so it is read in its place, and its calls are lost only when their writer is.

The copy has a name that no reader looks for until the position that speaks of it is in the database, and takes its
own after that; only then are the old segments removed. Whoever finds a copy after a crash asks the position about it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path

from django.conf import settings

from relay.digest.calls import PendingCall
from relay.digest.segment_copies import SUFFIX, SegmentCopy, copied, publish
from relay.gateway.journal.reader import JournalReader
from relay.gateway.journal.segments import RecordPosition

logger = logging.getLogger(__name__)

# Segments are worth a copy once they hold this part of what the journal may.
PART = 8
PAUSE_SECONDS = 10.0


class Carrier:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pause_until = 0.0

    def held(self, reader: JournalReader, needed: Container[str]) -> set[str]:
        """Segments that only calls under way keep from being removed, if those are so many bytes that it matters."""
        if time.monotonic() < self._pause_until:
            return set()
        held = {name for name in reader.finished if name in needed}
        is_much = sum(reader.read_to.get(name, 0) for name in held) > settings.PARLEY_JOURNAL_MB * 1024 * 1024 // PART
        return held if is_much else set()

    def carry_over(
        self, calls: Collection[PendingCall], held: Container[str], reader: JournalReader
    ) -> Collection[SegmentCopy]:
        """The copies, if they are worth making. Calls and reader use them from now on.

        The caller commits the position, which names them, and publishes them after that. If the commit fails, its
        outcome is unknown: the digester begins again, as after a crash.
        """
        copies = self._copies(calls, held) if _is_worth_it(calls, held, reader) else {}
        if not copies:
            self._pause_until = time.monotonic() + PAUSE_SECONDS
            return ()
        for call in calls:
            if call.writer in copies:
                call.places = _moved(call, held, copies[call.writer])
        reader.add({copy.name: copy.size for copy in copies.values()})
        return copies.values()

    def publish(self, copies: Iterable[SegmentCopy]) -> None:
        for copy in copies:
            publish(self.folder, copy.name)

    def _copies(self, calls: Collection[PendingCall], held: Container[str]) -> dict[str, SegmentCopy]:
        try:
            return {writer: copied(self.folder, records) for writer, records in _of_writers(calls, held).items()}
        except OSError as error:
            logger.warning("Calls that take long hold the relay's journal, and cannot be carried over: %s", error)
            tidy(self.folder, ())
            return {}


def tidy(folder: Path, known: Container[str]) -> None:
    """Copies that the position speaks of become segments, the others are of no use."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        if name in known:
            publish(folder, name)
        else:
            path.unlink()


def _is_worth_it(calls: Collection[PendingCall], held: Container[str], reader: JournalReader) -> bool:
    """At least half of what is held is of no use, so that to copy never costs more than to write did."""
    size = sum(end for name, end in reader.read_to.items() if name in held)
    return size > 2 * sum(place.end - place.start for call in calls for place in _within(call, held))


def _of_writers(
    calls: Collection[PendingCall], held: Container[str]
) -> Mapping[str, list[tuple[RecordPosition, PendingCall]]]:
    found: dict[str, list[tuple[RecordPosition, PendingCall]]] = defaultdict(list)
    for call in calls:
        for place in _within(call, held):
            found[call.writer].append((place, call))
    return found


def _within(call: PendingCall, held: Container[str]) -> Iterator[RecordPosition]:
    for segment, places in call.places.items():
        if segment in held:
            yield from places


def _moved(call: PendingCall, held: Container[str], copy: SegmentCopy) -> dict[str, list[RecordPosition]]:
    kept = {segment: places for segment, places in call.places.items() if segment not in held}
    carried = copy.places.get(call.id)
    return {copy.name: carried, **kept} if carried else kept
