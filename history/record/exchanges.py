"""One call to a model, from before it is sent until its answer is a message.

While an answer is on its way it lives in `Exchange.partial`, a scratch pad outside the ledger: writers note what they
have so far in memory, and one flush about four times a second writes all of it together, which is also the sign of
life; who has nothing new to say gives one every other second. A long answer is written less often: each time all of it
is written, so the pauses grow with its length. `finish` ends an exchange exactly once, whichever caller comes
first (the writer, or the sweep after a crash): the one whose UPDATE finds it still running appends the message, whole
or cut short with an honest status.
"""

from __future__ import annotations

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
from history.db.in_list import among
from history.db.large_values import execute_bound
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelOutput, Status, entry_to_json, read_entry, thaw
from history.errors import HistoryOff, NoSuchEntry
from history.models import Blob, Exchange, Message, Session, TokenCalibration
from history.record import counters, daily_counts, projections, recorder, writer
from history.record.branches import behind_notes
from history.record.recorder import Appended, refuse_when_off
from history.redaction.walker import Redactors

LIVES_FOR = timedelta(seconds=30)  # without a sign of life, an exchange counts as lost
SIGN_SECONDS = 2.0  # how often one that says nothing new gives it
SERVER_LOST = "server_lost"
# An answer of this many characters is written at most once a second, one of twice as many every other second.
CHARS_PER_SECOND = 4_000_000

# How an exchange can end, and what that makes of its answer (rule 4).
_STATUS_OF_END: dict[str, Status] = {
    "done": "complete",
    "upstream_error": "failed",
    "upstream_unreadable": "failed",
}


@dataclass(frozen=True, slots=True)
class _Noted:
    """An answer so far. An `Assembler` is a snapshot, whose texts are put together when they are written."""

    answer: ModelOutput | Assembler
    metadata: Mapping[str, Any]

    @property
    def chars(self) -> int:
        return self.answer.chars if isinstance(self.answer, Assembler) else len(self.answer.text)

    def output(self) -> ModelOutput:
        if isinstance(self.answer, ModelOutput):
            return replace(self.answer, metadata={**self.answer.metadata, **self.metadata})
        return self.answer.output(metadata={**self.metadata, "names": list(self.answer.part_names)})


_redactors: dict[UUID, Redactors | None] = {}  # of the exchanges that run here; None: their key keeps no texts
_noted: dict[UUID, _Noted | None] = {}  # the answer so far, or None when the last flush wrote it
_signs: dict[UUID, float] = {}  # when each of them was last written, by the clock of this process
_pauses: dict[UUID, float] = {}  # until when the text of each of them is not written again, by the same clock
_being_stored: set[UUID] = set()  # their writers have the whole answer and try to store it
_lock = threading.Lock()


class _Outage:
    """Until then, by the clock of this process, no writer counts as gone: the database was away."""

    patience_until = 0.0


_outage = _Outage()


def open_exchange(
    session: Session | None,
    *,
    owner: Any,
    after: int = 0,
    inputs: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Exchange:
    """Write down that a call is about to be made, and from what; long inputs are kept as blobs."""
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
    with _lock:
        _redactors[exchange.pk] = redactors
        _noted[exchange.pk] = None
    return exchange


def note_partial(exchange_id: UUID, answer: ModelOutput | Assembler, **metadata: Any) -> None:
    """Remember the answer so far, or a snapshot of it; a flush writes it. Cheap, and safe from any thread."""
    with _lock:
        if exchange_id in _noted:
            _noted[exchange_id] = _Noted(answer, metadata)


def flush_partials() -> int:
    """Write what was noted, and the signs of life of exchanges of this process that are due, in one batch."""
    with _lock:
        now = time.monotonic()
        texts = {pk: noted for pk, noted in _noted.items() if noted is not None and _pauses.get(pk, 0.0) <= now}
        silent = [pk for pk in _noted if pk not in texts and _needs_a_sign(pk, now)]
        redactors = {pk: _redactors[pk] for pk in texts}
        _noted.update(dict.fromkeys(texts))
        _signs.update(dict.fromkeys([*texts, *silent], now))
        _pauses.update({pk: now + noted.chars / CHARS_PER_SECOND for pk, noted in texts.items()})
    if not texts and not silent:
        return 0
    try:
        partials = {pk: _stored_partial(noted, redactors[pk]) for pk, noted in texts.items()}
        _write_partials({**partials, **dict.fromkeys(silent)})
    except DatabaseError:
        _note_again(texts, silent)
        raise
    return len(texts) + len(silent)


def _needs_a_sign(exchange_id: UUID, now: float) -> bool:
    last = _signs.get(exchange_id)
    return last is None or now - last >= SIGN_SECONDS


def request_stop(exchange: Exchange) -> bool:
    """Ask whoever runs it, in whatever process, to stop; false when it has ended already."""
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
    """End it: the answer becomes one message. None when somebody else ended it before, or there is nothing to keep.

    `silent_since`: only if it has given no sign of life since then. A writer that was taken for dead and comes back
    with the whole answer is heard: it stands beside the cut-off one, and on the path if nobody has gone on from there.
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
    """Its whole answer is in the memory of this process and is stored when the database takes it.

    The sweep of this process leaves it alone, however long ago its last sign of life was written. If it cannot be
    stored at all, its signs of life end, and the sweep takes what was noted.
    """
    with _lock:
        _being_stored.add(exchange_id)
    try:
        yield
    except BaseException:
        _forget(exchange_id)
        raise
    finally:
        with _lock:
            _being_stored.discard(exchange_id)


def sweep() -> int:
    """Turn exchanges whose writer is gone into interrupted messages with what there was of the answer.

    After an outage of the database the writers get time to give a sign of life first.
    """
    if time.monotonic() < _outage.patience_until:
        return 0
    limit = timezone.now() - LIVES_FOR
    try:
        lost = list(Exchange.objects.running().filter(heartbeat_at__lt=limit).order_by("heartbeat_at")[:100])
    except (OperationalError, InterfaceError):
        _outage.patience_until = time.monotonic() + LIVES_FOR.total_seconds()
        raise
    with _lock:
        lost = [exchange for exchange in lost if exchange.pk not in _being_stored]
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
    """When an ended exchange was last at work. One whose writer was lost ended with its last sign of life."""
    lost = When(**{f"{prefix}end_reason": SERVER_LOST}, then=Least(F(f"{prefix}heartbeat_at"), F(f"{prefix}ended_at")))
    return Case(lost, default=F(f"{prefix}ended_at"))


def inputs_of(exchange: Exchange) -> Any:
    """Everything that the request was made from, long ones read back from their blobs."""
    names = packing.blobs_in(packing.dump(exchange.inputs))
    blobs = dict(Blob.objects.filter(pk__in=names).values_list("sha256", "data")) if names else {}
    return packing.unpack_inputs(exchange.inputs, blobs)


def partial_of(exchange: Exchange) -> ModelOutput | None:
    """The answer so far, as the last flush left it."""
    if not exchange.partial:
        return None
    entry: Entry = read_entry(packing.load(exchange.partial))
    return entry if isinstance(entry, ModelOutput) else None


def _redactors_of(exchange: Exchange) -> Redactors | None:
    """None where the key keeps no texts at all: times, counts and the end are written down, nothing of a body is."""
    key = exchange.session.api_key if exchange.session else exchange.api_key
    mode = key.recording if key else "full"
    return redaction.redactors_for(mode) if redaction.stores_bodies(mode) else None


def _write_partials(partials: Mapping[UUID, str | None]) -> None:
    """One statement for all texts and one for all signs of life; an exchange that has ended is left alone."""
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
    """None where the key keeps no texts."""
    if redactors is None:
        return None
    return packing.dump(entry_to_json(redaction.redacted(noted.output(), redactors).entry))


def _note_again(texts: Mapping[UUID, _Noted], silent: Iterable[UUID]) -> None:
    """The database did not take it: keep it for the next flush, unless something newer was noted meanwhile."""
    with _lock:
        for pk in (*texts, *silent):
            _signs.pop(pk, None)
            _pauses.pop(pk, None)
        for pk, noted in texts.items():
            if pk in _noted and _noted[pk] is None:
                _noted[pk] = noted


def forget_all() -> None:
    """Of nothing that was noted is anything left to flush: for a process that begins anew."""
    with _lock:
        _noted.clear()
        _redactors.clear()
        _signs.clear()
        _pauses.clear()


def _forget(exchange_id: UUID) -> None:
    with _lock:
        _noted.pop(exchange_id, None)
        _redactors.pop(exchange_id, None)
        _signs.pop(exchange_id, None)
        _pauses.pop(exchange_id, None)


def _lock_rows(exchange: Exchange) -> None:
    """The session before the exchange, as a removal does it: two who end a call, or one who removes it, take turns.

    Where only one can write at all, as in SQLite, they do so already.
    """
    if not connection.features.has_select_for_update:
        return
    if exchange.session_id:
        Session.objects.lock(exchange.session_id)
    list(Exchange.objects.select_for_update().order_by().filter(pk=exchange.pk).values_list("pk"))


@contextmanager
def _locked_and_counted(exchange: Exchange) -> Iterator[None]:
    """What it has cost is counted with its message, or on its own."""
    _lock_rows(exchange)
    with daily_counts.recounting(exchanges=Exchange.objects.filter(pk=exchange.pk)):
        yield


def _swept_answer(exchange: Exchange) -> int | None:
    """The number of the message that the sweep made of it (0: of nothing); None: it was not swept."""
    lost = Exchange.objects.filter(pk=exchange.pk, end_reason=SERVER_LOST).values_list("message__seq").first()
    return None if lost is None else lost[0] or 0


def _endable(exchange: Exchange, silent_since: datetime | None, *, is_swept: bool) -> QuerySet[Exchange]:
    this = Exchange.objects.filter(pk=exchange.pk)
    if is_swept:
        return this.filter(end_reason=SERVER_LOST)
    return this.filter(ended_at=None, **{"heartbeat_at__lt": silent_since} if silent_since else {})


def message_of(output: ModelOutput, *, end_reason: str) -> ModelOutput | None:
    """What becomes of an answer that ended so (rule 4); None where there was no word of it and no error either.

    An error before the first word is a failed answer, however the connection ended.
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
    except HistoryOff:  # its key was told meanwhile to keep no texts
        return None
    Exchange.objects.filter(pk=exchange.pk).update(message=Message(pk=appended.message_id))
    return appended


def _append_after(session: Session, answer: ModelOutput, *, after: int, instead_of: int) -> Appended:
    """After what it answers and a summary that was written there meanwhile; after the head where that was trimmed."""
    head = writer.lock([session.pk])[session.pk].head
    if instead_of and head == instead_of:
        moved = HeadMoved(to=after, reason="whole answer")
        return recorder.append_many(session, [moved, answer], after=after)[-1]
    try:
        return recorder.append(session, answer, after=behind_notes(session.pk, after))
    except NoSuchEntry:
        return recorder.append(session, answer, after=head)


def _calibrate(exchange: Exchange, output: ModelOutput) -> None:
    """Learn from the vendor's own count how far our estimate for this model is off."""
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
