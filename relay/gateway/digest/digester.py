"""Reads the journal and files it, in the order of acceptance and in batches; remembers how far it came.

The position is kept in the same transaction as the rows that were made of what lies before it: whenever it dies, what
is in the record is not digested again and what is not is. With the database away it simply has more to read later.

A call is filed twice: when it is accepted (the session appears) and when it has ended (the answer). A request that
goes on from an answer which is not in the record yet waits a few seconds for it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import F

from history.entries import ModelOutput
from history.models import Exchange
from relay.gateway.digest import telling
from relay.gateway.digest.filing import Outcome, Wave
from relay.gateway.digest.marks import Memory
from relay.gateway.digest.plans import Filed, Under
from relay.gateway.digest.reading import read as read_request
from relay.gateway.digest.recognising import Spot
from relay.gateway.digest.retries import is_earlier_try
from relay.gateway.records import Accepted, Ended, Lost, Record, ReplyBytes
from relay.gateway.segments import Place, Reader, names, writer_of
from relay.models import JournalPosition

logger = logging.getLogger(__name__)

SERVER_LOST = "server_lost"
WAIT_SECONDS = 5.0
MOST_IN_A_WAVE = 100
MOST_RECORDS = 1_000
MOST_BYTES = 64 * 1024 * 1024
# Ids of calls that are done and lie behind the position, because an older call is still under way there.
MOST_DONE = 1_000


class Digester:
    """`patience`: for so long the end of a call is waited for, so that most calls are filed once instead of twice."""

    def __init__(self, folder: Path, *, name: str, patience: float = 0.3) -> None:
        self.folder, self.name, self.patience = folder, name, patience
        self.memory = Memory()
        self.under: OrderedDict[UUID, Under] = OrderedDict()
        self.done: OrderedDict[UUID, Mapping[str, int]] = OrderedDict()
        self.lost: list[Lost] = []
        self.has_more = False  # than could be read in one step
        self._reader: Reader | None = None
        self._read_before: dict[str, int] = {}

    @property
    def is_idle(self) -> bool:
        return not self.under

    def step(self) -> int:
        """Read some of what is new and file what can be filed; how many records that were."""
        reader = self._reader or self._begin()
        count = self._take_in(reader) if self._has_room() else 0
        self._give_up_lost(reader)
        for call in self.under.values():
            call.rounds += 1
        for wave in self._waves():
            self._file(wave, reader)
        if self.lost:
            self._file([], reader)
        reader.remove_all_but(self._needed(()))
        return count

    def _begin(self) -> Reader:
        kept = JournalPosition.objects.filter(pk=self.name).values_list("position", flat=True).first() or {}
        there = set(names(self.folder))
        self._read_before = {name: end for name, end in kept.get("to", {}).items() if name in there}
        self.done = OrderedDict((UUID(name), {}) for name in kept.get("done", ()))
        self._reader = Reader(self.folder, kept.get("from", {}))
        return self._reader

    # Reading.

    def _has_room(self) -> bool:
        """What is in memory is bounded; what cannot be filed yet does not count, for only reading on can help it."""
        return sum(call.size for call in self.under.values() if call.is_due) < MOST_BYTES

    def _take_in(self, reader: Reader) -> int:
        count = size = 0
        self.has_more, again = False, list[Under]()
        for place, record in reader.read():
            call = self._take(place, record)
            if call is not None and place.end <= self._read_before.get(place.segment, 0):
                again.append(call)
            count += 1
            size += place.end - place.start
            if count >= MOST_RECORDS or size >= MOST_BYTES:
                self.has_more = True
                break
        self._recall(again)
        return count

    def _take(self, place: Place, record: Record) -> Under | None:
        """What it says of a call; the call itself where this is its beginning."""
        if isinstance(record, Lost):
            self.lost.append(record)
            return None
        if isinstance(record, Accepted):
            return self._take_accepted(place, record)
        call = self.under.get(record.exchange)
        if call is not None:
            call.note(place)
            if isinstance(record, ReplyBytes):
                call.pieces.append(record.data)
            elif call.ended is None:
                call.ended = record
                call.pieces.append(record.reply)
        return None

    def _take_accepted(self, place: Place, record: Accepted) -> Under | None:
        if record.exchange in self.done or not settings.CHAT_HISTORY_ENABLED:
            return None
        call = Under(asked=read_request(record), writer=writer_of(place.segment))
        call.note(place)
        self.under[record.exchange] = call
        return call

    def _recall(self, again: list[Under]) -> None:
        """Calls that another life of ours has read: some are filed, some are done."""
        if not again:
            return
        rows = Exchange.objects.in_bulk([call.id for call in again])
        for call in again:
            row = rows.get(call.id)
            if row is not None and row.ended_at is not None:
                del self.under[call.id]
            elif row is not None:
                call.filed = Filed(
                    session_id=row.session_id, after=row.after, attempts=row.attempts - 1, metadata=row.metadata
                )
                call.asked = call.asked.without_body()

    def _give_up_lost(self, reader: Reader) -> None:
        """Calls whose process died: what there is of them is all there will be."""
        gone = reader.writers_gone()
        for call in self.under.values():
            if call.ended is None and call.writer in gone:
                call.ended = Ended(exchange=call.id, at=time.time(), reason=SERVER_LOST, is_counted=False)

    # Filing.

    def _waves(self) -> Iterator[list[Under]]:
        wave: list[Under] = []
        given: set[object] = set()
        for call in list(self.under.values()):
            if not call.is_due or self._may_end_soon(call) or self._waits_for_earlier_try(call):
                continue
            if len(wave) >= MOST_IN_A_WAVE or not given.isdisjoint(_needs(call)):
                yield wave
                wave, given = [], set()
            wave.append(call)
            given.update(_gives(call))
        if wave:
            yield wave

    def _file(self, calls: list[Under], reader: Reader) -> None:
        wave = Wave(self.memory, must_wait=self._must_wait)
        try:
            outcome = wave.file(calls, keep_position=lambda outcome: self._keep_position(outcome, reader))
        except (OperationalError, InterfaceError):
            self.memory.forget_all()
            raise
        except Exception as error:  # noqa: BLE001 - told in the log; one call must not hold up the others
            self.memory.forget_all()
            if len(calls) == 1:
                self._give_up(calls[0], error, reader)
            for call in calls if len(calls) > 1 else ():
                self._file([call], reader)
            return
        self.lost.clear()
        self._settle(outcome)
        telling.tell(outcome.sessions)

    def _settle(self, outcome: Outcome) -> None:
        """The rows are there: now memory says so too."""
        for exchange, filed in outcome.filed.items():
            call = self.under[exchange]
            call.filed, call.asked = filed, call.asked.without_body()
        for exchange in outcome.overtaken:
            call = self.under[exchange]
            call.filed = replace(call.filed or Filed(), is_overtaken=True)
        for exchange in outcome.done:
            self.done[exchange] = self.under.pop(exchange).starts
        needed = self._needed(())
        for exchange, starts in list(self.done.items()):
            if not any(start >= needed.get(segment, start + 1) for segment, start in starts.items()):
                del self.done[exchange]

    def _give_up(self, call: Under, error: Exception, reader: Reader) -> None:
        """One call that cannot be stored must not hold up the others. That it was made is written down all the same."""
        logger.error("A relayed call could not be stored: exchange %s.", call.id, exc_info=error)
        if call.is_given_up:
            self.done[call.id] = self.under.pop(call.id).starts
            return
        call.is_given_up = True
        call.asked = replace(call.asked, problem=f"could not be stored: {type(error).__name__}")
        self._file([call], reader)

    # Waiting.

    def _may_end_soon(self, call: Under) -> bool:
        return call.ended is None and time.monotonic() - call.seen_at < self.patience

    def _must_wait(self, call: Under, spot: Spot) -> bool:
        """Whether what it goes on from is probably on its way: then a few seconds are well spent."""
        if time.monotonic() - call.seen_at > WAIT_SECONDS:
            return False
        asked = call.asked
        if asked.name("previous_response_id"):
            return spot.is_guess and self._others_of_key(call)
        if asked.sends_new_alone:
            return call.rounds < 2 or self._is_open_elsewhere(call)
        last = asked.last_answer
        if last is None or spot.known > last:
            return False
        # Files are read one after the other: what came before it may lie in one that was read just too early.
        return call.rounds < 2 or self._has_answer_under_way(call, since=spot.known)

    def _has_answer_under_way(self, call: Under, *, since: int) -> bool:
        asked = call.asked
        awaited = {
            asked.chain[place - 1]
            for place, entry in enumerate(asked.entries)
            if place and place >= since and isinstance(entry, ModelOutput)
        }
        return any(other.asked.end in awaited for other in self.under.values() if other is not call)

    def _is_open_elsewhere(self, call: Under) -> bool:
        """Whether another call of the same conversation was accepted before it and is still being answered."""
        earlier = takewhile(lambda other: other is not call, self.under.values())
        return any(other.asked.session == call.asked.session for other in earlier)

    def _others_of_key(self, call: Under) -> bool:
        key = call.asked.record.key
        return call.rounds < 2 or any(
            other.asked.record.key == key for other in self.under.values() if other is not call
        )

    def _waits_for_earlier_try(self, call: Under) -> bool:
        """A try that goes on under way, because nobody has noticed yet that its client is gone, is overtaken."""
        if not call.asked.retry or call.filed:
            return False
        tries = [other for other in self.under.values() if _is_open_try(other, of=call)]
        call.earlier = max(tries, key=lambda other: other.asked.retry).id if tries else None
        return bool(tries) and time.monotonic() - call.seen_at <= WAIT_SECONDS

    # Position.

    def _needed(self, done: Iterable[UUID]) -> dict[str, int]:
        """From where each segment is needed by calls that are still under way."""
        gone = set(done)
        needed: dict[str, int] = {}
        for exchange, call in self.under.items():
            if exchange not in gone:
                for segment, start in call.starts.items():
                    needed[segment] = min(start, needed.get(segment, start))
        return needed

    def _keep_position(self, outcome: Outcome, reader: Reader) -> None:
        needed = self._needed(outcome.done)
        done = [*self.done, *outcome.done][-MOST_DONE:] if needed else []
        position = {
            "from": reader.position(needed),
            "to": {**self._read_before, **reader.read_to},
            "done": [exchange.hex for exchange in done],
        }
        values: dict[str, Any] = {"position": position, "digested_at": self._digested_at(outcome)}
        if not JournalPosition.objects.filter(pk=self.name).update(**values):
            JournalPosition.objects.create(pk=self.name, **values)
        for loss in self.lost:
            JournalPosition.objects.filter(pk=self.name).update(
                lost_calls=F("lost_calls") + loss.calls,
                lost_bytes=F("lost_bytes") + loss.lost_bytes,
                lost_at=datetime.fromtimestamp(loss.at, UTC),
                lost_why=loss.why[:1_000],
            )

    def _digested_at(self, outcome: Outcome) -> datetime:
        done = set(outcome.done)
        waiting = [call.asked.at for exchange, call in self.under.items() if exchange not in done]
        return min([*waiting, datetime.now(UTC)])


def _is_open_try(other: Under, *, of: Under) -> bool:
    is_overtaken = other.filed is not None and other.filed.is_overtaken
    return other.ended is None and not is_overtaken and is_earlier_try(other.asked, of=of.asked)


def _needs(call: Under) -> set[object]:
    """What must be in the record before this call is looked at, if another call of the same wave gives it."""
    asked = call.asked
    needs = set(_names(call))
    for place, entry in enumerate(asked.entries):
        if place and isinstance(entry, ModelOutput):
            needs.add(asked.chain[place - 1])
    if asked.first_answer is not None:
        needs.add(asked.end)
    if asked.name("previous_response_id"):
        needs.add(("replies", asked.record.key))
    if asked.retry:
        needs.add(asked.body_hash)
    if asked.parent is not None and call.filed is None:
        needs.add(asked.parent)
    return needs


def _gives(call: Under) -> set[object]:
    gives = {*_names(call), call.asked.end, call.asked.body_hash}
    return gives | {("replies", call.asked.record.key)} if call.asked.record.dialect == "openai-responses" else gives


def _names(call: Under) -> Iterator[object]:
    asked = call.asked
    yield from filter(None, [asked.session, call.filed.session_id if call.filed else None])
    if asked.name("prompt_cache_key"):
        yield "cache key", asked.name("prompt_cache_key")
