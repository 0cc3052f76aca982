"""Reads the journal and files it, in the order of acceptance and in batches; remembers how far it came.

The position is kept in the same transaction as the rows that were made of what lies before it: whenever it dies, what
is in the record is not digested again and what is not is (`positions`, `recovery`). With the database away it simply
has more to read later.

A call is filed twice: when it is accepted (the session appears) and when it has ended (the answer). A request that
goes on from an answer which is not in the record yet waits a few seconds for it (`waiting`).
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError

from history.db.transactions import writing
from history.errors import NoSuchEntry
from history.models import REMOVAL_STARTED, Session
from history.record.exchanges import SERVER_LOST
from relay.digest import files_aside, long_calls, page_updates, positions
from relay.digest.calls import FiledCall, PendingCall
from relay.digest.db_errors import OUTAGES, is_outage
from relay.digest.filing import FilingBatch, Outcome
from relay.digest.long_calls import Carrier
from relay.digest.ordering import CallOrder, gives, needs
from relay.digest.other_hosts import Neighbours
from relay.digest.planning import Planner
from relay.digest.positions import Position
from relay.digest.raw_bytes import largest_record
from relay.digest.recovery import calls_under_way
from relay.digest.session_cache import SessionCache
from relay.gateway.journal.damage import is_damage
from relay.gateway.journal.reader import JournalReader
from relay.gateway.journal.records import Accepted, Ended, Lost, Record, ReplyBytes
from relay.gateway.journal.segments import RecordPosition, names

logger = logging.getLogger(__name__)

# What was read and gives nothing to file yet, the middle of a long answer, is told to be read after so long.
KEEP_SECONDS = 20.0
MOST_IN_A_WAVE = 100
MOST_RECORDS = 1_000
# Parsing takes about six times as much memory.
MOST_BYTES = 8 * 1024 * 1024
MOST_ORPHANS = 10_000
# How often the files are looked through that are put aside: what was erased is gone from the disk so soon.
FILES_SECONDS = 30.0


class Digester:
    """`patience`: for so long the end of a call is waited for, so that most calls are filed once instead of twice."""

    def __init__(self, folder: Path, *, name: str, patience: float = 0.3) -> None:
        self.folder, self.name = folder, name
        self.memory = SessionCache()
        self.under: OrderedDict[UUID, PendingCall] = OrderedDict()
        self.lost: list[Lost] = []
        self.has_more = False  # than could be read in one step
        self._reader: JournalReader | None = None
        self._carrier = Carrier(folder)
        self._neighbours = Neighbours(name)
        self._waiting = CallOrder(self.under, self._neighbours, patience=patience)
        self._read_at: float | None = None  # when a reading began that came to the end
        self._kept = self._offered = Position()
        self._kept_at = time.monotonic()
        self._is_unsure = False
        # Calls without a beginning that are counted as lost, erased or not to be recorded.
        self._known_missing: set[UUID] = set()
        self._lost_beginnings = 0
        self._holes: defaultdict[str, set[int]] = defaultdict(set)
        self._looked_after: float | None = None  # when the files were that are put aside

    @property
    def is_idle(self) -> bool:
        return not self.under

    def step(self) -> int:
        """Read some of what is new and file what can be filed; how many records that were."""
        if self._is_unsure:
            self._make_sure()
        reader = self._reader or self._begin()
        try:
            return self._step(reader)
        except OUTAGES:
            self._is_unsure = True
            raise

    def _step(self, reader: JournalReader) -> int:
        self._neighbours.look_around()
        count = self._take_in(reader) if self._has_room() else 0
        self._give_up_lost(reader)
        for call in self.under.values():
            call.rounds += 1
        for wave in self._waves():
            self._file(wave, reader)
        if self.lost or self._is_behind(reader):
            self._commit_position(reader)
        self._neighbours.tell(self._digested_until(Outcome()))
        self._carry_over(reader)
        reader.remove_all_but(self._needed())
        self._look_after_files()
        return count

    def _begin(self) -> JournalReader:
        self._kept = kept = positions.kept_of(self.name)
        long_calls.tidy(self.folder, kept.to)
        self._read_at, self.lost = None, []
        self._holes = defaultdict(set, {name: set(ends) for name, ends in kept.holes.items()})
        self.under.clear()
        calls, lost = calls_under_way(self.folder, kept)
        self.under.update(calls)
        for place, loss in lost:
            self._take_lost(place, loss)
        there = set(names(self.folder))
        since = {name: end for name, end in kept.to.items() if name in there}
        self._reader = JournalReader(self.folder, since, most=largest_record())
        self._known_missing = set(kept.filed) - self.under.keys()
        return self._reader

    def _make_sure(self) -> None:
        """A database that goes away in the middle of a commit does not say whether that came through. If it did, memory
        is behind it, and begins again."""
        if positions.kept_of(self.name) != self._kept:
            self._reader = None
        self._is_unsure = False

    # Reading.

    def _has_room(self) -> bool:
        """What is in memory is bounded; what cannot be filed yet does not count, for only reading on can help it."""
        return sum(call.size for call in self.under.values() if call.is_due) < MOST_BYTES

    def _take_in(self, reader: JournalReader) -> int:
        count = size = 0
        self.has_more, begun = False, time.monotonic()
        for place, record in reader.read():
            self._take(place, record)
            count += 1
            size += place.end - place.start
            if count >= MOST_RECORDS or size >= MOST_BYTES:
                self.has_more = True
                return count
        self._read_at = begun
        return count

    def _take(self, place: RecordPosition, record: Record) -> None:
        if isinstance(record, Lost):
            self._take_lost(place, record)
        elif isinstance(record, Accepted):
            self._take_accepted(place, record)
        elif (call := self.under.get(record.exchange)) is not None:
            call.note(place, record)
        else:
            self._note_orphan(place, record)

    def _take_lost(self, place: RecordPosition, loss: Lost) -> None:
        """What is missing from a damaged file is counted once, however often it is read."""
        if is_damage(loss):
            if place.position in self._holes[place.segment]:
                return
            self._holes[place.segment].add(place.position)
            self._lost_beginnings += loss.calls
        self.lost.append(loss)

    def _note_orphan(self, place: RecordPosition, record: ReplyBytes | Ended) -> None:
        """A call whose beginning is not in the journal: it was damaged, counted already or not."""
        if not settings.CHAT_HISTORY_ENABLED or record.exchange in self._known_missing:
            return
        if len(self._known_missing) < MOST_ORPHANS:
            self._known_missing.add(record.exchange)
        why = f"the journal is damaged: the beginning of a call is missing before byte {place.start} of {place.segment}"
        logger.error("Exchange %s cannot be recorded: %s.", record.exchange, why)
        if self._lost_beginnings:
            self._lost_beginnings -= 1
            return
        self.lost.append(Lost(at=record.at, calls=1, lost_bytes=0, why=why))

    def _take_accepted(self, place: RecordPosition, record: Accepted) -> None:
        if settings.CHAT_HISTORY_ENABLED:
            self.under[record.exchange] = PendingCall.begun(place, record)

    def _give_up_lost(self, reader: JournalReader) -> None:
        """Calls whose process died: what there is of them is all there will be."""
        gone = reader.writers_gone()
        for call in self.under.values():
            if call.ended is None and call.writer in gone:
                call.end(Ended(exchange=call.id, at=time.time(), reason=SERVER_LOST, is_counted=False))

    # Filing.

    def _waves(self) -> Iterator[list[PendingCall]]:
        wave: list[PendingCall] = []
        given: set[object] = set()
        for call in list(self.under.values()):
            if not call.is_due or self._waiting.may_end_soon(call) or self._waiting.has_earlier_try(call):
                continue
            if len(wave) >= MOST_IN_A_WAVE or not given.isdisjoint(needs(call)):
                yield wave
                wave, given = [], set()
            wave.append(call)
            given.update(gives(call))
        if wave:
            yield wave

    def _file(self, calls: list[PendingCall], reader: JournalReader) -> None:
        is_alone = not self._neighbours.are_there
        planner = Planner(self.memory, self.folder, must_wait=self._waiting.must_wait, is_alone=is_alone)
        batch = FilingBatch(planner, self.memory)
        try:
            batch.prepare(calls)
            with writing():
                batch.write()
                self._keep_position(batch.outcome, reader)
        except Exception as error:
            self.memory.forget_all()
            if is_outage(error):
                raise
            # Told in the log: one call must not hold up the others.
            if len(calls) == 1:
                self._try_again_or_give_up(calls[0], error, reader)
            for call in calls if len(calls) > 1 else ():
                self._file([call], reader)
            return
        self._note_kept()
        self._settle(batch.outcome)
        page_updates.tell(batch.outcome.sessions)

    def _settle(self, outcome: Outcome) -> None:
        """The rows are there: now memory says so too."""
        for exchange, filed in outcome.filed.items():
            call = self.under[exchange]
            call.filed, call.asked = filed, call.asked.without_body()
        for exchange in outcome.overtaken:
            call = self.under[exchange]
            call.filed = replace(call.filed or FiledCall(), is_overtaken=True)
        for exchange in outcome.done:
            del self.under[exchange]

    def _try_again_or_give_up(self, call: PendingCall, error: Exception, reader: JournalReader) -> None:
        """Another host may have begun the same session in the same moment, or its owner has removed it since it was
        found: then a new plan knows."""
        if isinstance(error, IntegrityError | NoSuchEntry) and not call.has_clashed:
            call.has_clashed = True
            self._file([call], reader)
        else:
            self._give_up(call, error, reader)

    def _give_up(self, call: PendingCall, error: Exception, reader: JournalReader) -> None:
        """One call that cannot be stored must not hold up the others. That it was made is written down all the same."""
        if _was_erased(call, error):
            logger.info("The session of a relayed call was erased before the answer came: exchange %s.", call.id)
            call.forget_files()
        else:
            logger.error("A relayed call could not be stored: exchange %s.", call.id, exc_info=error)
        if call.is_given_up:
            del self.under[call.id]
            return
        call.is_given_up = True
        call.asked = replace(call.asked, problem=f"could not be stored: {type(error).__name__}")
        self._file([call], reader)

    def _look_after_files(self) -> None:
        if self._looked_after is None or time.monotonic() - self._looked_after >= FILES_SECONDS:
            self._looked_after = time.monotonic()
            files_aside.remove_due(self.folder, under_way=self.under)

    # Position.

    def _needed(self, done: Container[UUID] = ()) -> dict[str, int]:
        """From where each segment is needed by calls that are still under way."""
        needed: dict[str, int] = {}
        for exchange, call in self.under.items():
            if exchange not in done:
                for segment, places in call.places.items():
                    needed[segment] = min(places[0].begins, needed.get(segment, places[0].begins))
        return needed

    def _commit_position(self, reader: JournalReader) -> None:
        """Alone, where there is nothing to file."""
        with writing():
            self._keep_position(Outcome(), reader)
        self._note_kept()

    def _note_kept(self) -> None:
        self._kept, self._kept_at = self._offered, time.monotonic()
        self.lost.clear()

    def _is_behind(self, reader: JournalReader) -> bool:
        """Whether the position has been far from where we are for a while: who looks would take us for late."""
        if time.monotonic() - self._kept_at < KEEP_SECONDS:
            return False
        return any(end > self._kept.to.get(name, 0) for name, end in reader.read_to.items())

    def _carry_over(self, reader: JournalReader) -> None:
        held = self._carrier.held(reader, self._needed())
        if not held:
            return
        try:
            if copies := self._carrier.carry_over(self.under.values(), held, reader):
                self._commit_position(reader)
                self._carrier.publish(copies)
        except BaseException:
            self._reader = None
            raise

    def _keep_position(self, outcome: Outcome, reader: JournalReader) -> None:
        done = set(outcome.done)
        filed = {
            exchange: call.filed is not None or exchange in outcome.filed
            for exchange, call in self.under.items()
            if exchange not in done
        }
        holes = {name: sorted(ends) for name, ends in self._holes.items() if ends and name in reader.read_to}
        self._offered = Position(start=self._needed(done), to=dict(reader.read_to), filed=filed, holes=holes)
        positions.keep(
            self.name,
            self._offered,
            digested_at=self._neighbours.by_database(self._digested_until(outcome)),
            lost=self.lost,
        )

    def _digested_until(self, outcome: Outcome) -> float | None:
        """Whatever was in the journal before that moment is in the record, as far as there is something of it."""
        if self._read_at is None:
            return None
        done = set(outcome.done)
        under = [call for exchange, call in self.under.items() if exchange not in done]
        unseen = (call.unseen_since(is_filed=call.id in outcome.filed) for call in under)
        return min([self._read_at, *(since for since in unseen if since is not None)])


def _was_erased(call: PendingCall, error: Exception) -> bool:
    if call.filed is None or call.filed.session_id is None or not isinstance(error, NoSuchEntry):
        return False
    there = Session.objects.filter(pk=call.filed.session_id).exclude(hidden_at=REMOVAL_STARTED)
    return not there.exists()
