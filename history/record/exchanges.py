"""Exchanges: one call to a model, from before it is sent until its answer is a message.

Until then the answer is in `Exchange.partial`, outside of the sealed entries. Writers note in memory what they have so
far. A flush writes all notes together about four times a second, which is also their heartbeat; a writer without news
gives one every two seconds. Long answers are written less often, because each time all of it is written.

`finish` ends an exchange exactly once: the caller (the writer, or the sweep after a crash) whose UPDATE finds it still
running appends the message, whole or cut short.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.models import Case, F, QuerySet, When
from django.db.models.functions import Least
from django.utils import timezone

from history import redaction
from history.answers.assembly import Assembler
from history.context.tokens import updated_factor
from history.db import bulk, packing
from history.db.parameters import among, execute_bound
from history.db.process_state import process_state
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelOutput, Status, entry_to_json, read_entry, thaw
from history.errors import HistoryOff, NoSuchEntry
from history.models import Blob, Exchange, Message, Session, TokenCalibration
from history.record import counters, daily_counts, projections, recorder, writer
from history.record.branches import behind_notes
from history.record.recorder import Appended, refuse_when_off
from history.redaction.walker import Redactors

LIVES_FOR = timedelta(seconds=30)  # without a heartbeat, an exchange counts as lost
SIGN_SECONDS = 2.0  # between heartbeats of one without news
SERVER_LOST = "server_lost"
# An answer of this many characters is written at most once a second, one of twice as many every other second.
CHARS_PER_SECOND = 4_000_000

# The status of an answer by the end reason of its exchange (rule 4). All others are interrupted.
_STATUS_OF_END: dict[str, Status] = {"done": "complete", "upstream_error": "failed", "upstream_unreadable": "failed"}


@dataclass(frozen=True, slots=True)
class _Noted:
    """An answer so far. The texts of an `Assembler` are joined when they are written."""

    answer: ModelOutput | Assembler
    metadata: Mapping[str, Any]

    @property
    def chars(self) -> int:
        return self.answer.chars if isinstance(self.answer, Assembler) else len(self.answer.text)

    def output(self) -> ModelOutput:
        if isinstance(self.answer, ModelOutput):
            return replace(self.answer, metadata={**self.answer.metadata, **self.metadata})
        return self.answer.output(metadata={**self.metadata, "names": list(self.answer.part_names)})


@dataclass(slots=True)
class _RunningExchange:
    """An exchange that runs in this process. Times are by the clock of this process."""

    redactors: Redactors | None  # None if the key stores no texts
    noted: _Noted | None = None  # the answer so far, unless a flush has written it
    written_at: float = float("-inf")
    paused_until: float = 0.0  # the text is not written before


class _RunningExchanges:
    """The exchanges of this process.

    Writers of `being_stored` have the whole answer and try to store it. Until `patience_until` no writer counts as
    lost, because the database was away.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.exchanges: dict[UUID, _RunningExchange] = {}
        self.being_stored: set[UUID] = set()
        self.patience_until = 0.0


def _running() -> _RunningExchanges:
    return process_state.get(_RunningExchanges)


def open_exchange(
    session: Session | None, *, owner: Any, after: int = 0, inputs: Mapping[str, Any] | None = None, **fields: Any
) -> Exchange:
    """Store that a call is about to be made, and its inputs. Long inputs become blobs."""
    running = _running()
    refuse_when_off()
    version = session.version if session else 0
    fitting = bulk.fit_values(Exchange, fields)
    exchange = Exchange(session=session, owner=owner, after=after, history_version=version, **fitting)
    redactors = _redactors_of(exchange)
    kept = redaction.redacted_json(inputs or {}, redactors) if redactors else {}
    exchange.inputs, blobs = packing.pack_inputs(kept)
    with writing():
        exchange.save(force_insert=True)
        if blobs:
            writer.store_blobs([Blob(sha256=name, data=content, size=len(content)) for name, content in blobs.items()])
            links = [Exchange.blobs.through(exchange_id=exchange.pk, blob_id=name) for name in blobs]
            Exchange.blobs.through.objects.bulk_create(links)
    with running.lock:
        running.exchanges[exchange.pk] = _RunningExchange(redactors)
    return exchange


def note_partial(exchange_id: UUID, answer: ModelOutput | Assembler, **metadata: Any) -> None:
    """Note the answer so far, or a snapshot of it, for the next flush. Cheap, and safe from any thread."""
    running = _running()
    with running.lock:
        if exchange := running.exchanges.get(exchange_id):
            exchange.noted = _Noted(answer, metadata)


def flush_partials() -> int:
    """Write the notes and the heartbeats of this process that are due, in one batch."""
    running = _running()
    texts: dict[UUID, tuple[_Noted, Redactors | None]] = {}
    silent: list[UUID] = []
    with running.lock:
        now = time.monotonic()
        for pk, exchange in running.exchanges.items():
            if exchange.noted is not None and exchange.paused_until <= now:
                texts[pk] = exchange.noted, exchange.redactors
                exchange.paused_until = now + exchange.noted.chars / CHARS_PER_SECOND
                exchange.noted = None
            elif now - exchange.written_at >= SIGN_SECONDS:
                silent.append(pk)
            else:
                continue
            exchange.written_at = now
    if not texts and not silent:
        return 0
    try:
        partials = {pk: _stored_partial(*item) for pk, item in texts.items()}
        _write_partials({**partials, **dict.fromkeys(silent)})
    except DatabaseError:
        _note_again({pk: noted for pk, (noted, _) in texts.items()}, silent)
        raise
    return len(texts) + len(silent)


def request_stop(exchange: Exchange) -> bool:
    """Ask the process that runs it to stop. False if it has ended."""
    waiting = Exchange.objects.running().filter(pk=exchange.pk, stop_requested_at=None)
    with writing():
        waiting.update(stop_requested_at=timezone.now())
    return Exchange.objects.running().filter(pk=exchange.pk).exists()


def finish(
    exchange: Exchange,
    output: ModelOutput | None,
    *,
    end_reason: str,
    cost: Decimal | None = None,
    silent_since: datetime | None = None,
    **fields: Any,
) -> Appended | None:
    """End it and append its answer. None if it had ended before, or if there is nothing to store.

    `silent_since`: only if its last heartbeat is older. If a writer that was swept as lost returns with the whole
    answer, the answer is appended beside the cut-off one, and becomes the path if nothing followed that.
    """
    if fields.get("error"):
        redactors = _redactors_of(exchange)
        fields["error"] = (
            redaction.redacted_text(fields["error"], redactors)[0][: packing.LONG_TEXT] if redactors else ""
        )
    with writing(), _locked_and_counted(exchange):
        swept = _swept_answer(exchange) if output and silent_since is None else None
        ended = _endable(exchange, silent_since, is_swept=swept is not None).update(
            ended_at=timezone.now(),
            end_reason=end_reason,
            partial="",
            cost=cost or 0,
            **bulk.fit_values(Exchange, fields),
        )
        if not ended:
            if silent_since is None:
                _forget(exchange.pk)
            return None
        appended = _append_answer(exchange, output, end_reason, swept=swept or 0) if output else None
        if output and output.usage:
            usage = packing.clean_json(thaw(entry_to_json(output)["usage"]))
            Exchange.objects.filter(pk=exchange.pk).update(usage=usage)
            _calibrate(exchange, output)
        if exchange.session_id and (cost or appended is None):
            writer.change(exchange.session_id, cost=F("cost") + (cost or 0))
    _forget(exchange.pk)
    counters.ended["chat", end_reason] += 1
    exchange.refresh_from_db()
    return appended


@contextmanager
def being_stored(exchange_id: UUID) -> Iterator[None]:
    """Keep the sweep of this process away while a whole answer waits for the database.

    If the answer cannot be stored at all, its heartbeats end, and the sweep stores what was noted.
    """
    running = _running()
    with running.lock:
        running.being_stored.add(exchange_id)
    try:
        yield
    except BaseException:
        _forget(exchange_id)
        raise
    finally:
        with running.lock:
            running.being_stored.discard(exchange_id)


def sweep() -> int:
    """End exchanges whose writer is lost, with the answer so far as an interrupted message.

    After an outage of the database the writers get time for a heartbeat first.
    """
    running = _running()
    if time.monotonic() < running.patience_until:
        return 0
    limit = timezone.now() - LIVES_FOR
    try:
        lost = list(Exchange.objects.running().filter(heartbeat_at__lt=limit).order_by("heartbeat_at")[:100])
    except (OperationalError, InterfaceError):
        running.patience_until = time.monotonic() + LIVES_FOR.total_seconds()
        raise
    with running.lock:
        lost = [exchange for exchange in lost if exchange.pk not in running.being_stored]
    failed: list[Exception] = []
    for exchange in lost:
        try:
            finish(exchange, partial_of(exchange), end_reason=SERVER_LOST, silent_since=limit)
        except (OperationalError, InterfaceError):  # the database is away, for all of them
            raise
        except Exception as error:  # noqa: BLE001 - told below; one that cannot be ended must not hold up the others
            failed.append(error)
    if failed:
        raise ExceptionGroup("exchanges that could not be ended", failed)
    return len(lost)


def end_of_work(prefix: str = "") -> Case:
    """The end of an exchange; of a lost one, its last heartbeat."""
    lost = When(**{f"{prefix}end_reason": SERVER_LOST}, then=Least(F(f"{prefix}heartbeat_at"), F(f"{prefix}ended_at")))
    return Case(lost, default=F(f"{prefix}ended_at"))


def inputs_of(exchange: Exchange) -> Any:
    """The inputs of the request, with long ones read from their blobs."""
    names = packing.blobs_in(packing.dump(exchange.inputs))
    blobs = dict(Blob.objects.filter(pk__in=names).values_list("sha256", "data")) if names else {}
    return packing.restore(exchange.inputs, blobs)


def partial_of(exchange: Exchange) -> ModelOutput | None:
    """The answer so far, as of the last flush."""
    if not exchange.partial:
        return None
    entry: Entry = read_entry(json.loads(exchange.partial))
    return entry if isinstance(entry, ModelOutput) else None


def _redactors_of(exchange: Exchange) -> Redactors | None:
    """None if the key stores no texts."""
    key = exchange.session.api_key if exchange.session else exchange.api_key
    mode = key.recording if key else "full"
    return redaction.redactors_for(mode) if redaction.stores_bodies(mode) else None


def _write_partials(partials: Mapping[UUID, str | None]) -> None:
    """One statement for all texts and one for all heartbeats. Exchanges that have ended are not changed."""
    table, key = Exchange._meta.db_table, Exchange._meta.pk
    moment = timezone.now()
    at = Exchange._meta.get_field("heartbeat_at").get_db_prep_save(moment, connection)
    texts = [
        (partial, at, key.get_db_prep_value(pk, connection)) for pk, partial in partials.items() if partial is not None
    ]
    silent = [pk for pk, partial in partials.items() if partial is None]
    with writing():
        if texts:
            sql = f"UPDATE {table} SET partial = %s, heartbeat_at = %s WHERE id = %s AND ended_at IS NULL"  # noqa: S608
            execute_bound(sql, texts)
        if silent:
            Exchange.objects.running().filter(pk__in=among(silent)).update(heartbeat_at=moment)


def _stored_partial(noted: _Noted, redactors: Redactors | None) -> str | None:
    if redactors is None:
        return None
    return packing.dump(entry_to_json(redaction.redacted(noted.output(), redactors).entry))


def _note_again(texts: Mapping[UUID, _Noted], silent: Iterable[UUID]) -> None:
    """Keep notes for the next flush, unless there are newer ones: the database did not take them."""
    running = _running()
    with running.lock:
        for pk in (*texts, *silent):
            if exchange := running.exchanges.get(pk):
                exchange.written_at, exchange.paused_until = float("-inf"), 0.0
                exchange.noted = exchange.noted or texts.get(pk)


def _forget(exchange_id: UUID) -> None:
    running = _running()
    with running.lock:
        running.exchanges.pop(exchange_id, None)


def _lock_rows(exchange: Exchange) -> None:
    """Lock the session before the exchange, like a removal, so that `finish` and removals take turns.

    On SQLite one transaction writes at a time anyway.
    """
    if not connection.features.has_select_for_update:
        return
    if exchange.session_id:
        Session.objects.lock(exchange.session_id)
    list(Exchange.objects.select_for_update().order_by().filter(pk=exchange.pk).values_list("pk"))


@contextmanager
def _locked_and_counted(exchange: Exchange) -> Iterator[None]:
    _lock_rows(exchange)
    with daily_counts.recounting(exchanges=Exchange.objects.filter(pk=exchange.pk)):
        yield


def _swept_answer(exchange: Exchange) -> int | None:
    """The number of the message that the sweep appended (0 for none). None if it was not swept."""
    lost = Exchange.objects.filter(pk=exchange.pk, end_reason=SERVER_LOST).values_list("message__seq").first()
    return None if lost is None else lost[0] or 0


def _endable(exchange: Exchange, silent_since: datetime | None, *, is_swept: bool) -> QuerySet[Exchange]:
    this = Exchange.objects.filter(pk=exchange.pk)
    if is_swept:
        return this.filter(end_reason=SERVER_LOST)
    return this.filter(ended_at=None, **{"heartbeat_at__lt": silent_since} if silent_since else {})


def message_of(output: ModelOutput, *, end_reason: str) -> ModelOutput | None:
    """The message of an answer that ended in this way (rule 4). None without any part or error.

    An error before the first part is a failed answer, however the connection ended.
    """
    status = _STATUS_OF_END.get(end_reason, "interrupted")
    if status == "interrupted" and not output.parts:
        if not output.error:
            return None
        status = "failed"
    return replace(output, status=status, end_reason=output.end_reason or end_reason)


def _append_answer(exchange: Exchange, output: ModelOutput, end_reason: str, *, swept: int) -> Appended | None:
    answer = message_of(output, end_reason=end_reason)
    if exchange.session is None or answer is None or not settings.CHAT_HISTORY_ENABLED:
        return None
    try:
        appended = _append_after(exchange.session, answer, after=exchange.after, instead_of=swept)
    except HistoryOff:  # the key stores no texts any more
        return None
    Exchange.objects.filter(pk=exchange.pk).update(message=Message(pk=appended.message_id))
    return appended


def _append_after(session: Session, answer: ModelOutput, *, after: int, instead_of: int) -> Appended:
    """Append after `after` and any summary there. After the head if `after` was trimmed."""
    head = writer.lock([session.pk])[session.pk].head
    if instead_of and head == instead_of:
        moved = HeadMoved(to=after, reason="whole answer")
        return recorder.append_many(session, [moved, answer], after=after)[-1]
    try:
        return recorder.append(session, answer, after=behind_notes(session.pk, after))
    except NoSuchEntry:
        return recorder.append(session, answer, after=head)


def _calibrate(exchange: Exchange, output: ModelOutput) -> None:
    """Adjust the factor of this model's token estimates to the provider's count."""
    usage = output.usage
    if usage is None or usage.source != "provider" or not exchange.estimated_tokens or not usage.input_tokens:
        return
    known, _ = TokenCalibration.objects.select_for_update().get_or_create(model=exchange.model)
    actual = projections.clamp_count(usage.input_tokens)
    known.factor = updated_factor(
        known.factor, samples=known.samples, estimated=exchange.estimated_tokens, actual=actual
    )
    known.samples += 1
    known.save()
