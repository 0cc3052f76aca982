"""Digester: reads the journal and files its calls in batches, in the order of acceptance.

The position is saved in the same transaction as the rows of everything before it, so nothing is digested twice or lost
when the digester dies. A call is filed when it is accepted (the session appears) and when it has ended (the answer).
"""

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError

from history.db.transactions import writing
from history.errors import NoSuchEntry
from history.models import Session
from history.record.exchanges import SERVER_LOST
from relay.digest import journal_compaction, kept_files, positions
from relay.digest.bodies import largest_record
from relay.digest.calls import FiledCall, PendingCall
from relay.digest.filing import FilingBatch, FilingResult
from relay.digest.pending_calls import CallOrder, provided_keys, recover_calls, required_keys
from relay.digest.planning import Planner
from relay.digest.positions import OUTAGES, OtherHosts, ReadPosition, is_outage
from relay.digest.session_cache import SessionCache
from relay.gateway.journal.reader import JournalReader
from relay.gateway.journal.record_framing import RecordPosition
from relay.gateway.journal.records import CallAccepted, CallEnded, Record, RecordsLost, ReplyBytes
from relay.gateway.journal.segments import names
from relay.live import groups

logger = logging.getLogger(__name__)

# Records that lead to nothing to file yet, the middle of a long answer, are saved as read after so long.
SAVE_SECONDS = 20.0
MOST_IN_A_BATCH = 100
MOST_RECORDS = 1_000
MOST_BYTES = 8 * 1024 * 1024  # parsing takes about six times as much memory
MOST_ORPHANS = 10_000
FILES_SECONDS = 30.0  # how often files put aside are checked: erased calls leave the disk within this time
NOTHING_FILED = FilingResult()


class Digester:
    """`end_wait` is how long to wait for the end of a call, so that most calls are filed once instead of twice."""

    def __init__(self, folder: Path, *, name: str, end_wait: float = 0.3) -> None:
        self.folder, self.name = folder, name
        self.cache = SessionCache()
        self.pending: OrderedDict[UUID, PendingCall] = OrderedDict()
        self.lost: list[RecordsLost] = []
        self.has_more = False  # than could be read in one step
        self._reader: JournalReader | None = None
        self._carrier = journal_compaction.JournalCompaction(folder)
        self._other_hosts = OtherHosts(name)
        self._order = CallOrder(self.pending, self._other_hosts, end_wait=end_wait)
        self._read_at: float | None = None  # when the last reading began that reached the end
        self._saved = self._offered = ReadPosition()
        self._saved_at = time.monotonic()
        self._is_unsure = False
        # Calls without a beginning that are counted as lost, erased or not to be recorded.
        self._known_missing: set[UUID] = set()
        self._lost_beginnings = 0
        self._holes: defaultdict[str, set[int]] = defaultdict(set)
        self._files_checked_at: float | None = None

    @property
    def is_idle(self) -> bool:
        return not self.pending

    def step(self) -> int:
        if self._is_unsure and positions.load_position(self.name) != self._saved:
            # The last commit came through: a database that goes away in the middle does not say so.
            self._reader = None
        self._is_unsure = False
        reader = self._reader or self._begin()
        try:
            return self._step(reader)
        except OUTAGES:
            self._is_unsure = True
            raise

    def _step(self, reader: JournalReader) -> int:
        self._other_hosts.refresh()
        # Memory is bounded. A call that cannot be filed yet does not count, because only reading on can help it.
        is_full = sum(call.size for call in self.pending.values() if call.is_due) >= MOST_BYTES
        count = 0 if is_full else self._read(reader)
        gone = reader.writers_gone()
        for call in self.pending.values():
            call.rounds += 1
            if call.ended is None and call.writer in gone:  # nothing more of it will come
                call.end(CallEnded(exchange=call.id, at=time.time(), reason=SERVER_LOST, is_counted=False))
        for batch in self._batches():
            self._file(batch, reader)
        # Monitoring would report a late digester if the position were saved only with rows.
        is_old = time.monotonic() - self._saved_at >= SAVE_SECONDS
        if self.lost or (is_old and any(end > self._saved.to.get(name, 0) for name, end in reader.read_to.items())):
            self._save_position_alone(reader)
        self._other_hosts.publish(self._digested_until())
        self._carry_over(reader)
        reader.remove_all_but(self._needed())
        if self._files_checked_at is None or time.monotonic() - self._files_checked_at >= FILES_SECONDS:
            self._files_checked_at = time.monotonic()
            kept_files.remove_due(self.folder, pending=self.pending)
        return count

    def _begin(self) -> JournalReader:
        self._saved = saved = positions.load_position(self.name)
        journal_compaction.clean_up(self.folder, saved.to)
        self._read_at, self.lost = None, []
        self._holes = defaultdict(set, {name: set(ends) for name, ends in saved.holes.items()})
        self.pending.clear()
        calls, lost = recover_calls(self.folder, saved)
        self.pending.update(calls)
        for place, loss in lost:
            self._note_loss(place, loss)
        there = set(names(self.folder))
        since = {name: end for name, end in saved.to.items() if name in there}
        self._reader = JournalReader(self.folder, since, most=largest_record())
        self._known_missing = set(saved.filed) - self.pending.keys()
        return self._reader

    def _read(self, reader: JournalReader) -> int:
        count = size = 0
        self.has_more, started = False, time.monotonic()
        for place, record in reader.read():
            self._take(place, record)
            count += 1
            size += place.end - place.start
            if count >= MOST_RECORDS or size >= MOST_BYTES:
                self.has_more = True
                return count
        self._read_at = started
        return count

    def _take(self, place: RecordPosition, record: Record) -> None:
        if isinstance(record, RecordsLost):
            self._note_loss(place, record)
        elif isinstance(record, CallAccepted):
            if settings.CHAT_HISTORY_ENABLED:
                self.pending[record.exchange] = PendingCall.begin(place, record)
        elif (call := self.pending.get(record.exchange)) is not None:
            call.add(place, record)
        else:
            self._note_orphan(place, record)

    def _note_loss(self, place: RecordPosition, loss: RecordsLost) -> None:
        if loss.is_damage:
            if place.position in self._holes[place.segment]:
                return  # counted already
            self._holes[place.segment].add(place.position)
            self._lost_beginnings += loss.calls
        self.lost.append(loss)

    def _note_orphan(self, place: RecordPosition, record: ReplyBytes | CallEnded) -> None:
        """Count a call whose beginning is missing from the journal, unless its damage is counted already."""
        if not settings.CHAT_HISTORY_ENABLED or record.exchange in self._known_missing:
            return
        if len(self._known_missing) < MOST_ORPHANS:
            self._known_missing.add(record.exchange)
        why = f"the journal is damaged: the beginning of a call is missing before byte {place.start} of {place.segment}"
        logger.error("Exchange %s cannot be recorded: %s.", record.exchange, why)
        if self._lost_beginnings:
            self._lost_beginnings -= 1
            return
        self.lost.append(RecordsLost(at=record.at, calls=1, lost_bytes=0, why=why))

    def _batches(self) -> Iterator[list[PendingCall]]:
        batch: list[PendingCall] = []
        provided: set[object] = set()
        for call in list(self.pending.values()):
            if not call.is_due or self._order.may_end_soon(call) or self._order.must_wait_for_try(call):
                continue
            if len(batch) >= MOST_IN_A_BATCH or not provided.isdisjoint(required_keys(call)):
                yield batch
                batch, provided = [], set()
            batch.append(call)
            provided.update(provided_keys(call))
        if batch:
            yield batch

    def _file(self, calls: list[PendingCall], reader: JournalReader) -> None:
        batch = FilingBatch(Planner(self.cache, self.folder, self._order))
        try:
            batch.prepare(calls)
            with writing():
                batch.write()
                self._save_position(reader, batch.outcome)
        except Exception as error:
            self.cache.forget_all()
            if is_outage(error):
                raise
            if len(calls) == 1:
                self._retry_or_give_up(calls[0], error, reader)
            else:
                # One call must not hold up the others.
                for call in calls:
                    self._file([call], reader)
            return
        self._note_saved()
        outcome = batch.outcome
        for exchange, filed in outcome.filed.items():
            call = self.pending[exchange]
            call.filed, call.request = filed, call.request.without_body()
        for call in map(self.pending.__getitem__, outcome.overtaken):
            call.filed = replace(call.filed or FiledCall(), is_overtaken=True)
        for exchange in outcome.done:
            del self.pending[exchange]
        _notify_pages(outcome.sessions)

    def _retry_or_give_up(self, call: PendingCall, error: Exception, reader: JournalReader) -> None:
        """Plan it again after a clash with another host or an erasure. The second time, write only its exchange."""
        if isinstance(error, IntegrityError | NoSuchEntry) and not call.has_clashed:
            call.has_clashed = True
            self._file([call], reader)
            return
        session = call.filed.session_id if call.filed else None
        there = Session.objects.filter(pk=session).exclude(state=Session.State.REMOVING) if session else None
        if there is not None and isinstance(error, NoSuchEntry) and not there.exists():
            logger.info("The session of a relayed call was erased before the answer came: exchange %s.", call.id)
            call.forget_files()
        else:
            logger.error("A relayed call could not be stored: exchange %s.", call.id, exc_info=error)
        if call.is_given_up:
            del self.pending[call.id]
            return
        call.is_given_up = True
        call.request = replace(call.request, problem=f"could not be stored: {type(error).__name__}")
        self._file([call], reader)

    def _needed(self, done: Container[UUID] = ()) -> dict[str, int]:
        """From where each segment is needed by pending calls."""
        needed: dict[str, int] = {}
        for exchange, call in self.pending.items():
            if exchange not in done:
                for segment, places in call.places.items():
                    needed[segment] = min(places[0].begins, needed.get(segment, places[0].begins))
        return needed

    def _note_saved(self) -> None:
        self._saved, self._saved_at = self._offered, time.monotonic()
        self.lost.clear()

    def _carry_over(self, reader: JournalReader) -> None:
        try:
            if copies := self._carrier.copy_pending_calls(self.pending.values(), self._needed(), reader):
                self._save_position_alone(reader)
                for copy in copies:
                    journal_compaction.publish(self.folder, copy.name)
        except BaseException:
            self._reader = None
            raise

    def _save_position_alone(self, reader: JournalReader) -> None:
        with writing():
            self._save_position(reader)
        self._note_saved()

    def _save_position(self, reader: JournalReader, outcome: FilingResult = NOTHING_FILED) -> None:
        filed = {
            exchange: call.filed is not None or exchange in outcome.filed
            for exchange, call in self.pending.items()
            if exchange not in outcome.done
        }
        holes = {name: sorted(ends) for name, ends in self._holes.items() if ends and name in reader.read_to}
        self._offered = ReadPosition(
            start=self._needed(outcome.done), to=dict(reader.read_to), filed=filed, holes=holes
        )
        digested_at = self._other_hosts.to_database_time(self._digested_until(outcome))
        positions.save_position(self.name, self._offered, digested_at=digested_at, lost=self.lost)

    def _digested_until(self, outcome: FilingResult = NOTHING_FILED) -> float | None:
        """The moment before which everything in the journal is in the record."""
        if self._read_at is None:
            return None
        pending = (call for call in self.pending.values() if call.id not in outcome.done)
        unseen = (call.unseen_since(is_filed=call.id in outcome.filed) for call in pending)
        return min([self._read_at, *(since for since in unseen if since is not None)])


def _notify_pages(sessions: Mapping[UUID, int]) -> None:
    """Notify open pages of changed sessions. Without Redis web processes poll (`relay.live.relayed_updates`)."""
    if settings.REDIS_URL:
        for session_id, owner in sessions.items():
            groups.notify_session(session_id)
            groups.notify_sidebar(owner, session_id)
