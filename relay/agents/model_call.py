"""Calls to models: reserved and recorded before they are sent, streamed, and stored once, whole or cut short.

Every call reserves from its user's daily budget before it is sent and settles when its answer is stored, with the
mechanism of relayed calls (`relay.usage.budgets`). A call that does not fit beside running ones waits until one of them
has ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings

from history.answers.assembly import Assembler
from history.answers.events import Event, SurrogateJoiner
from history.context.tokens import estimate_parts
from history.db.transactions import writing
from history.entries import ModelOutput, Usage, entry_to_json, thaw
from history.models import Exchange
from history.record import exchanges, recorder
from relay.agents.requests import RenderedCall, record_call
from relay.agents.turn import StoredAnswer, TurnInput, TurnObserver, set_leaf
from relay.errors import BudgetReserved, OverAllowance, ProviderError
from relay.providers.base import CallNotes
from relay.providers.error_advice import error_facts
from relay.providers.http import Route
from relay.runtime.async_db import in_database_after_outages, store_once
from relay.usage import allowances, budgets, counters
from relay.usage.budgets import BudgetLimit, Payer
from relay.usage.prices import NO_USE, Use, cost_of

WAIT_SECONDS, TRY_EVERY_SECONDS = 60.0, 0.2  # how long a call waits for running ones, and how often it tries


@dataclass(slots=True)
class Reservation:
    """What one call has reserved; nothing where the person has no budget."""

    payer: Payer
    route: Route
    read: int
    budgets: list[BudgetLimit] = field(default_factory=list)
    name: str = field(default_factory=lambda: str(uuid4()))

    def price(self, usage: Usage) -> Decimal:
        has_money = budgets.has_money(self.budgets)
        name, model = self.route.provider.name, self.route.model.name
        return cost_of(usage, provider=name, model=model, has_money_budget=has_money)

    def use_of(self, output: ModelOutput, *, is_done: bool, is_answered: bool) -> Use:
        """What counts for an answer: the provider's numbers, and our estimate where they did not come, or not to the
        end. A call that was refused before any answer counts nothing."""
        usage = output.usage
        if is_answered and (usage is None or not is_done):
            known = usage or Usage(input_tokens=self.read)
            usage = replace(known, output_tokens=max(known.output_tokens, estimate_parts(output.parts)))
        if usage is None:
            return NO_USE
        return Use(0, usage.input_tokens + usage.output_tokens, self.price(usage))

    @asynccontextmanager
    async def settling(self, spent: Use) -> AsyncIterator[None]:
        """Around the transaction that stores the answer and what it used."""
        if not self.budgets:
            yield
            return
        owner, counted = self.payer.owner, NO_USE
        await budgets.settle_in_redis(self.payer, self.name, spent)
        counters.begin_writing_chat(owner)
        try:
            yield
            counted = spent
        finally:
            counters.end_writing_chat(owner, counted)
            budgets.release(self.payer, self.name)

    def release(self) -> None:
        """Give back what was reserved, where nothing was stored. May be called twice."""
        if self.budgets:
            budgets.settle(self.payer, self.name, NO_USE)


async def reserve(owner: int, rendered: RenderedCall) -> Reservation:
    """Reserve what a call may use at most.

    Raises OverAllowance where a budget is used up, BudgetReserved where running calls may use up the rest of it.
    """
    payer, route = Payer(owner), rendered.route
    reservation = Reservation(payer, route, rendered.tokens)
    counters.set_limits(owner, rendered.limits)
    if not rendered.limits.has_budget:
        return reservation
    if counters.owner_account(owner).is_stale:
        await counters.load_owner(owner)
    reservation.budgets = found = budgets.budgets_of(payer)
    name, model, most = route.provider.name, route.model.name, rendered.options.max_tokens
    written = settings.PARLEY_RELAY_RESERVED_TOKENS if most is None else most
    amount = budgets.estimate_most_use(found, read=rendered.tokens, written=written, provider=name, model=model)
    until = time.monotonic() + WAIT_SECONDS
    while (refusal := await budgets.reserve(payer, reservation.name, amount, found)) is not None:
        what = allowances.TOKENS if refusal.budget.unit == "tokens" else allowances.COST
        if refusal.is_used_up:
            raise OverAllowance(what=what, until=refusal.budget.resets_at)
        if time.monotonic() >= until:
            raise BudgetReserved(what=what)
        await asyncio.sleep(TRY_EVERY_SECONDS)
    return reservation


class ModelCall:
    """A recorded call and its answer. Without an observer it is not an answer of the conversation, but a summary."""

    def __init__(self, turn: TurnInput, rendered: RenderedCall, exchange: Exchange, reservation: Reservation) -> None:
        self.turn, self.rendered, self.exchange, self.reservation = turn, rendered, exchange, reservation
        route = rendered.route
        self.assembler = Assembler(provider=route.provider.name, model=route.model.name, agent=turn.agent.name)
        self.notes = CallNotes()
        self.started = time.monotonic()
        self.latency: float | None = None

    async def stream(self, observer: TurnObserver | None = None) -> None:
        rendered, surrogates = self.rendered, SurrogateJoiner()
        self.notes.on_retry = observer.on_retry if observer else None
        events = rendered.route.provider.call(rendered.context, rendered.options, notes=self.notes)
        async with aclosing(events):
            async for event in events:
                if self.latency is None:
                    self.latency = time.monotonic() - self.started
                self._take(surrogates.join(event), observer)
        for event in surrogates.rest():
            self._take(event, observer)

    def _take(self, event: Event, observer: TurnObserver | None) -> None:
        self.assembler.feed(event)
        if observer is not None:
            observer.on_event(event)

    async def store(
        self, end_reason: str, *, observer: TurnObserver | None = None, error: ProviderError | None = None
    ) -> StoredAnswer:
        role = self.rendered.role
        output = self.assembler.output(
            latency=self.latency,
            duration=time.monotonic() - self.started,
            metadata={} if role == "executor" else {"role": role},
        )
        if error is not None:
            metadata = {**output.metadata, "failure": error_facts(error)}
            output = replace(output, error=output.error or str(error), metadata=metadata)
        is_answered = self.latency is not None
        spent = self.reservation.use_of(output, is_done=end_reason == "done", is_answered=is_answered)
        run_id = observer.id if observer else None
        with exchanges.being_stored(self.exchange.pk):
            async with self.reservation.settling(spent):
                seq = await store_once(partial(_finish, run_id, self, output, end_reason, spent))
        self.turn.budget.spend(spent.tokens)
        if observer is not None:
            await observer.on_stored(leaf=seq)
        return StoredAnswer(seq, output)


@asynccontextmanager
async def open_call(turn: TurnInput, rendered: RenderedCall) -> AsyncIterator[ModelCall]:
    """Reserve what the call may use at most, and record it. Nothing has been sent yet."""
    reservation = await reserve(turn.user.pk, rendered)
    try:
        exchange = await in_database_after_outages(record_call, rendered, turn.agent.name)
        yield ModelCall(turn, rendered, exchange, reservation)
    finally:
        reservation.release()


def _finish(
    run_id: UUID | None, call: ModelCall, output: ModelOutput, end_reason: str, spent: Use, *, is_repeated: bool
) -> int:
    """The answer becomes a message, and the run's leaf."""
    for content in call.assembler.blobs.values() if run_id else ():
        recorder.store_blob(content, media_type="application/octet-stream")
    exchange, notes = call.exchange, call.notes
    fields: dict[str, Any] = {"attempts": max(1, notes.attempts), "request_hash": notes.request_hash}
    if losses := sorted({loss.code.value for loss in notes.losses}):
        fields["metadata"] = {**exchange.metadata, "losses": losses}
    if run_id:
        fields["error"] = output.error
    elif output.usage:
        fields["usage"] = thaw(entry_to_json(output)["usage"])
    cost = call.reservation.price(output.usage) if output.usage else Decimal(0)
    with writing():
        if is_repeated and (stored := _stored_answer(exchange)) is not None:
            return stored
        appended = exchanges.finish(exchange, output if run_id else None, end_reason=end_reason, cost=cost, **fields)
        if spent:
            allowances.note_usage(call.turn.user, tokens=spent.tokens, cost=spent.cost)
        return set_leaf(run_id, appended.seq) if run_id and appended else exchange.after


def _stored_answer(exchange: Exchange) -> int | None:
    """The entry that an earlier attempt has stored, or the one before it where there was nothing to keep."""
    ended = Exchange.objects.filter(pk=exchange.pk, ended_at__isnull=False).exclude(end_reason=exchanges.SERVER_LOST)
    found = ended.values_list("message__seq", flat=True)[:1]
    return next((seq or exchange.after for seq in found), None)
