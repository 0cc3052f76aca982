"""Exchanges: one call to a model, from before it is sent until its answer is a message.

Until then the answer is in `Exchange.partial` (`record.partial_answers`). Of the writer and the sweep after a crash,
the one whose UPDATE finds the exchange running ends it and appends the message, whole or cut short.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.db.models import Case, F, QuerySet, When
from django.db.models.functions import Least
from django.utils import timezone

from history import redaction
from history.context.tokens import updated_factor
from history.db import bulk, packing
from history.db.prepared import prepared, prepared_update
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelOutput, Status, entry_to_json, read_entry, thaw
from history.errors import HistoryOff, NoSuchEntry
from history.models import Blob, Exchange, Session, TokenCalibration
from history.record import counters, daily_counts, projections, recorder, writer
from history.record.partial_answers import (
    being_stored as being_stored,
    flush_partials as flush_partials,
    note_partial as note_partial,
    running_exchanges,
)
from history.record.paths import behind_notes
from history.record.recorder import Appended, refuse_when_off
from history.redaction.walker import Redactors

LIVES_FOR = timedelta(seconds=30)  # without a heartbeat, an exchange counts as lost
SERVER_LOST = "server_lost"

# The status of an answer by the end reason of its exchange (rule 4). All others are interrupted.
_STATUS_OF_END: dict[str, Status] = {"done": "complete", "upstream_error": "failed", "upstream_unreadable": "failed"}


def open_exchange(
    session: Session | None, *, owner: Any, after: int = 0, inputs: Mapping[str, Any] | None = None, **fields: Any
) -> Exchange:
    """Store that a call is about to be made, and its inputs. Long inputs become blobs."""
    refuse_when_off()
    version = session.version if session else 0
    fitting = bulk.fit_values(Exchange, fields)
    exchange = Exchange(session=session, owner=owner, after=after, history_version=version, **fitting)
    redactors = _redactors_of(exchange)
    kept = redaction.redacted_json(inputs or {}, redactors) if redactors else {}
    exchange.inputs, blobs = packing.pack_inputs(kept)
    with writing():
        bulk.insert(Exchange, [exchange])
        if blobs:
            writer.store_blobs([Blob(sha256=name, data=content, size=len(content)) for name, content in blobs.items()])
            links = [Exchange.blobs.through(exchange_id=exchange.pk, blob_id=name) for name in blobs]
            Exchange.blobs.through.objects.bulk_create(links)
    running_exchanges().add(exchange.pk, redactors)
    return exchange


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
    if error := fields.get("error"):
        redactors = _redactors_of(exchange)
        fields["error"] = redaction.redacted_text(error, redactors)[0][: packing.LONG_TEXT] if redactors else ""
    values = bulk.fit_values(Exchange, fields) | {"end_reason": end_reason, "cost": cost or Decimal(0)}
    values |= {"ended_at": timezone.now(), "partial": ""}
    if output and output.usage:
        values["usage"] = packing.clean_json(thaw(entry_to_json(output)["usage"]))
    with _locked(exchange):
        if _end_running(exchange, values, silent_since=silent_since):
            appended = _append_answer(exchange, output, end_reason)
            if cost or appended is None:  # a running one has neither usage nor cost, and was not counted
                daily_counts.count_exchanges(Exchange.objects.filter(pk=exchange.pk))
        elif output and silent_since is None and (swept := _lost_answers(exchange.pk)):
            rows = Exchange.objects.filter(pk=exchange.pk)
            with daily_counts.recounting(exchanges=rows):
                rows.update(**values)
                appended = _append_answer(exchange, output, end_reason, swept=swept[0] or 0)
        else:
            if silent_since is None:
                running_exchanges().forget(exchange.pk)
            return None
        if output:
            _calibrate(exchange, output)
        if exchange.session_id and (cost or appended is None):
            writer.change(exchange.session_id, cost=F("cost") + (cost or 0))
    running_exchanges().forget(exchange.pk)
    counters.ended["chat", end_reason] += 1
    for name, value in values.items():
        setattr(exchange, name, value)
    if appended:
        exchange.message_id = appended.message_id
    return appended


def _end_running(exchange: Exchange, values: Mapping[str, Any], *, silent_since: datetime | None) -> bool:
    if silent_since is not None:
        running = Exchange.objects.filter(pk=exchange.pk, ended_at=None, heartbeat_at__lt=silent_since)
        return bool(running.update(**values))
    pk = Exchange._meta.pk.get_db_prep_value(exchange.pk, connection)
    return bool(bulk.update_where(Exchange, values, "id = %s AND ended_at IS NULL", [pk]))


@prepared
def _lost_answers(exchange_id: UUID) -> QuerySet[Exchange, int | None]:
    return Exchange.objects.filter(pk=exchange_id, end_reason=SERVER_LOST).values_list("message__seq", flat=True)


def sweep() -> int:
    """End exchanges whose writer is lost, with the answer so far. After an outage they get time for a heartbeat."""
    running = running_exchanges()
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
        except Exception as error:  # noqa: BLE001 - raised below; one that cannot be ended must not hold up the others
            failed.append(error)
    if failed:
        raise ExceptionGroup("exchanges that could not be ended", failed)
    return len(lost)


def end_of_work(prefix: str = "") -> Case:
    lost = When(**{f"{prefix}end_reason": SERVER_LOST}, then=Least(F(f"{prefix}heartbeat_at"), F(f"{prefix}ended_at")))
    return Case(lost, default=F(f"{prefix}ended_at"))


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


@contextmanager
def _locked(exchange: Exchange) -> Iterator[None]:
    """Lock the session before the exchange, like a removal, so that `finish` and removals take turns."""
    with writing(savepoint=False):
        if exchange.session_id and connection.features.has_select_for_update:
            Session.objects.lock(exchange.session_id)
        yield


def message_of(output: ModelOutput, *, end_reason: str) -> ModelOutput | None:
    """The message of an answer that ended in this way (rule 4). None without any part or error."""
    status = _STATUS_OF_END.get(end_reason, "interrupted")
    if status == "interrupted" and not output.parts:
        if not output.error:
            return None
        status = "failed"  # an error before the first part, however the connection ended
    return replace(output, status=status, end_reason=output.end_reason or end_reason)


def _append_answer(
    exchange: Exchange, output: ModelOutput | None, end_reason: str, *, swept: int = 0
) -> Appended | None:
    answer = message_of(output, end_reason=end_reason) if output else None
    if exchange.session is None or answer is None or not settings.CHAT_HISTORY_ENABLED:
        return None
    try:
        appended = _append_after(exchange.session, answer, after=exchange.after, instead_of=swept)
    except HistoryOff:  # the key stores no texts any more
        return None
    _set_message(exchange.pk, appended.message_id)
    return appended


@prepared_update
def _set_message(exchange_id: UUID, message_id: int) -> tuple[QuerySet[Exchange], dict[str, Any]]:
    return Exchange.objects.filter(pk=exchange_id), {"message": message_id}


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
    usage = output.usage
    if usage is None or usage.source != "provider" or not exchange.estimated_tokens or not usage.input_tokens:
        return
    found = _locked_calibration(exchange.model)
    row = found[0] if found else TokenCalibration.objects.select_for_update().get_or_create(model=exchange.model)[0]
    actual = projections.clamp_count(usage.input_tokens)
    factor = updated_factor(row.factor, samples=row.samples, estimated=exchange.estimated_tokens, actual=actual)
    values = {"factor": factor, "samples": row.samples + 1, "updated_at": timezone.now()}
    bulk.update_where(TokenCalibration, values, "model = %s", [exchange.model])


@prepared
def _locked_calibration(model: str) -> QuerySet[TokenCalibration]:
    return TokenCalibration.objects.select_for_update().filter(model=model)
