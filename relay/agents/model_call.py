"""One call to a model within a turn: its answer is streamed, and stored once, whole or cut short."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from history.answers.assembly import Assembler
from history.answers.events import Event, SurrogateJoiner
from history.db.transactions import writing
from history.entries import ModelOutput
from history.models import Exchange
from history.record import exchanges, recorder
from relay.agents import spending
from relay.agents.compression import compress, read_run_updates
from relay.agents.requests import ContextFull, PreparedCall, RenderedCall, call_outcome, open_call, render_call
from relay.agents.settings import RoleName
from relay.agents.spending import Reservation
from relay.agents.turn import (
    CompressionRequest,
    StoredAnswer,
    Turn,
    TurnFailed,
    TurnObserver,
    finish_if_cancelled,
    set_leaf,
)
from relay.errors import Cut, ProviderError
from relay.providers.advice import failure_of
from relay.providers.base import CallNotes, Route
from relay.providers.registry import router
from relay.runtime.async_db import in_database_after_outages
from relay.usage import allowances
from relay.usage.amounts import Use


async def call_model(turn: Turn, observer: TurnObserver, role: RoleName, leaf: int) -> StoredAnswer:
    route = router().route(turn.agent.model_for(role, picked=turn.model))
    rendered = await _render(turn, observer, role, route, leaf)
    reservation = await spending.reserve(
        turn.user.pk, rendered.limits, route=route, read=rendered.tokens, written=rendered.options.max_tokens
    )
    try:
        prepared = await in_database_after_outages(open_call, rendered)
        call = _Call(turn, prepared, role, reservation)
        return await _run_call(call, observer)
    finally:
        reservation.release()


async def _run_call(call: _Call, observer: TurnObserver) -> StoredAnswer:
    await observer.on_call(call.prepared, call.assembler, role=call.role)
    try:
        await call.stream(observer)
    except ProviderError as error:
        if error.kind == "context_length" and (shorter := await _compress_after_refusal(call, observer)):
            return await call_model(call.turn, observer, call.role, shorter)
        await call.store(observer, "upstream_cut" if isinstance(error, Cut) else "upstream_error", error=error)
        raise TurnFailed(error) from error
    except asyncio.CancelledError:
        await finish_if_cancelled(call.store(observer, observer.stop_reason or "stopped"))
        raise
    except BaseException:
        await finish_if_cancelled(call.store(observer, "server_error"))
        raise
    return await finish_if_cancelled(call.store(observer, "done"))


async def _render(turn: Turn, observer: TurnObserver, role: RoleName, route: Route, leaf: int) -> RenderedCall:
    """The next call of a run, from its path; compressed first if it is full or a summary was requested."""
    leaf, request = await in_database_after_outages(read_run_updates, observer.id, turn.session_id, leaf)
    options: Any = {"agent": turn.agent, "role": role, "route": route, "client": turn.client}
    if request is None:
        try:
            return await in_database_after_outages(
                render_call, turn.session_id, leaf=leaf, may_be_full=False, **options
            )
        except ContextFull:
            request = CompressionRequest(why="full")
    leaf = await compress(turn, observer, leaf, route=route, request=request)
    return await in_database_after_outages(render_call, turn.session_id, leaf=leaf, **options)


async def _compress_after_refusal(call: _Call, observer: TurnObserver) -> int:
    """Compress a context that the provider refuses as too long. The entry to continue from; 0 if nothing can go."""
    exchange, route = call.prepared.exchange, call.prepared.route
    call.reservation.release()  # a summary reserves for itself
    shorter = await compress(
        call.turn, observer, exchange.after, route=route, request=CompressionRequest(why="too_long")
    )
    if shorter == exchange.after:
        return 0
    await in_database_after_outages(
        exchanges.finish, exchange, None, end_reason="upstream_error", error="context_length"
    )
    return shorter


class _Call:
    """A call whose answer is being written."""

    def __init__(self, turn: Turn, prepared: PreparedCall, role: RoleName, reservation: Reservation) -> None:
        self.turn, self.prepared, self.role, self.reservation = turn, prepared, role, reservation
        route = prepared.route
        self.assembler = Assembler(provider=route.provider.name, model=route.model.name, agent=turn.agent.name)
        self.surrogates, self.notes = SurrogateJoiner(), CallNotes()
        self.started = time.monotonic()
        self.latency: float | None = None

    async def stream(self, observer: TurnObserver) -> None:
        provider, prepared = self.prepared.route.provider, self.prepared
        self.notes.on_retry = observer.on_retry
        async with aclosing(provider.call(prepared.context, prepared.options, notes=self.notes)) as events:
            async for event in events:
                if self.latency is None:
                    self.latency = time.monotonic() - self.started
                self._take(self.surrogates.join(event), observer)
        for event in self.surrogates.rest():
            self._take(event, observer)

    def _take(self, event: Event, observer: TurnObserver) -> None:
        self.assembler.feed(event)
        observer.on_event(event)

    async def store(
        self, observer: TurnObserver, end_reason: str, *, error: ProviderError | None = None
    ) -> StoredAnswer:
        output = self.assembler.output(
            latency=self.latency,
            duration=time.monotonic() - self.started,
            metadata={} if self.role == "executor" else {"role": self.role},
        )
        if error is not None:
            metadata = {**output.metadata, "failure": failure_of(error)}
            output = replace(output, error=output.error or str(error), metadata=metadata)
        is_answered = self.latency is not None
        spent = self.reservation.use_of(output, is_done=end_reason == "done", is_answered=is_answered)
        with exchanges.being_stored(self.prepared.exchange.pk):
            async with self.reservation.settling(spent):
                seq = await in_database_after_outages(_finish, observer.id, self, output, end_reason, spent)
        self.turn.budget.spend(spent.tokens)
        await observer.on_stored(leaf=seq)
        return StoredAnswer(seq, output)


def _finish(run_id: UUID, call: _Call, output: ModelOutput, end_reason: str, spent: Use) -> int:
    """The answer becomes a message, and the run's leaf. Safe to repeat: a commit may succeed unnoticed."""
    for content in call.assembler.blobs.values():
        recorder.store_blob(content, media_type="application/octet-stream")
    exchange = call.prepared.exchange
    with writing():
        if (stored := _stored_answer(exchange)) is not None:
            return stored
        outcome = call_outcome(call.prepared, call.notes)
        cost = call.reservation.price(output.usage) if output.usage else Decimal(0)
        appended = exchanges.finish(exchange, output, end_reason=end_reason, cost=cost, error=output.error, **outcome)
        if spent:
            allowances.note_usage(call.turn.user, tokens=spent.tokens, cost=spent.cost)
        return set_leaf(run_id, appended.seq) if appended else exchange.after


def _stored_answer(exchange: Exchange) -> int | None:
    """The entry that an earlier attempt has stored, or the one before it where there was nothing to keep."""
    ended = Exchange.objects.filter(pk=exchange.pk, ended_at__isnull=False).exclude(end_reason=exchanges.SERVER_LOST)
    found = ended.values_list("message__seq", flat=True)[:1]
    return next((seq or exchange.after for seq in found), None)
