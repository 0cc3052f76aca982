"""Answers so far of the exchanges of this process: noted in memory, and written together about four times a second.

A flush is also the heartbeat of their writers; a writer without news gives one every two seconds. Long answers are
written less often, because each time all of it is written.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection
from django.utils import timezone

from history import redaction
from history.answers.assembly import Assembler
from history.db import packing
from history.db.parameters import among, execute_bound
from history.db.process_state import process_state
from history.db.transactions import writing
from history.entries import ModelOutput, entry_to_json
from history.models import Exchange
from history.redaction.walker import Redactors

HEARTBEAT_SECONDS = 2.0  # between heartbeats of one without news
# An answer of this many characters is written at most once a second, one of twice as many every other second.
CHARS_PER_SECOND = 4_000_000
_UPDATE = "UPDATE history_exchange SET partial = %s, heartbeat_at = %s WHERE id = %s AND ended_at IS NULL"


@dataclass(frozen=True, slots=True)
class _Noted:
    """An answer so far. The texts of an `Assembler` are joined when they are written."""

    answer: ModelOutput | Assembler
    metadata: Mapping[str, Any]

    @property
    def chars(self) -> int:
        return self.answer.chars if isinstance(self.answer, Assembler) else len(self.answer.text)

    def stored(self, redactors: Redactors | None) -> str | None:
        if redactors is None:
            return None
        if isinstance(self.answer, ModelOutput):
            output = replace(self.answer, metadata={**self.answer.metadata, **self.metadata})
        else:
            output = self.answer.output(metadata={**self.metadata, "names": list(self.answer.part_names)})
        return packing.dump(entry_to_json(redaction.redacted(output, redactors).entry))


@dataclass(slots=True)
class _RunningExchange:
    """An exchange that runs in this process. Times are by the clock of this process."""

    redactors: Redactors | None  # None if the key stores no texts
    noted: _Noted | None = None  # the answer so far, unless a flush has written it
    written_at: float = float("-inf")
    paused_until: float = 0.0  # the text is not written before


@dataclass(eq=False)
class RunningExchanges:
    """The exchanges of this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    exchanges: dict[UUID, _RunningExchange] = field(default_factory=dict)
    being_stored: set[UUID] = field(default_factory=set)  # their writers have the whole answer and try to store it
    patience_until: float = 0.0  # no writer counts as lost before, because the database was away

    def add(self, exchange_id: UUID, redactors: Redactors | None) -> None:
        with self.lock:
            self.exchanges[exchange_id] = _RunningExchange(redactors)

    def forget(self, exchange_id: UUID) -> None:
        with self.lock:
            self.exchanges.pop(exchange_id, None)


def running_exchanges() -> RunningExchanges:
    return process_state.get(RunningExchanges)


def note_partial(exchange_id: UUID, answer: ModelOutput | Assembler, **metadata: Any) -> None:
    """Note the answer so far, or a snapshot of it, for the next flush. Cheap, and safe from any thread."""
    running = running_exchanges()
    with running.lock:
        if exchange := running.exchanges.get(exchange_id):
            exchange.noted = _Noted(answer, metadata)


def flush_partials() -> int:
    """Write the notes and the heartbeats of this process that are due, in one batch."""
    running = running_exchanges()
    texts: dict[UUID, tuple[_Noted, Redactors | None]] = {}
    silent: list[UUID] = []
    with running.lock:
        now = time.monotonic()
        for pk, exchange in running.exchanges.items():
            if exchange.noted is not None and exchange.paused_until <= now:
                texts[pk] = exchange.noted, exchange.redactors
                exchange.paused_until = now + exchange.noted.chars / CHARS_PER_SECOND
                exchange.noted = None
            elif now - exchange.written_at >= HEARTBEAT_SECONDS:
                silent.append(pk)
            else:
                continue
            exchange.written_at = now
    if not texts and not silent:
        return 0
    try:
        _write({pk: noted.stored(redactors) for pk, (noted, redactors) in texts.items()} | dict.fromkeys(silent))
    except DatabaseError:
        with running.lock:
            for pk in (*texts, *silent):
                if again := running.exchanges.get(pk):
                    again.written_at, again.paused_until = float("-inf"), 0.0
                    if again.noted is None and pk in texts:  # else there is a newer one
                        again.noted = texts[pk][0]
        raise
    return len(texts) + len(silent)


def _write(partials: Mapping[UUID, str | None]) -> None:
    """One statement for all texts and one for all heartbeats. Exchanges that have ended are not changed."""
    key, moment = Exchange._meta.pk, timezone.now()
    at = Exchange._meta.get_field("heartbeat_at").get_db_prep_save(moment, connection)
    texts = [(text, at, key.get_db_prep_value(pk, connection)) for pk, text in partials.items() if text is not None]
    silent = [pk for pk, text in partials.items() if text is None]
    with writing():
        if texts:
            execute_bound(_UPDATE, texts)
        if silent:
            Exchange.objects.running().filter(pk__in=among(silent)).update(heartbeat_at=moment)


@contextmanager
def being_stored(exchange_id: UUID) -> Iterator[None]:
    """Keep the sweep of this process away while a whole answer waits for the database."""
    running = running_exchanges()
    with running.lock:
        running.being_stored.add(exchange_id)
    try:
        yield
    except BaseException:
        running.forget(exchange_id)  # its heartbeats end, and the sweep stores what was noted
        raise
    finally:
        with running.lock:
            running.being_stored.discard(exchange_id)
