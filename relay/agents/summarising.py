"""Calls to a model that write a summary, part by part, checked before use.

Each question is a call like any other: written down before it is sent, counted and paid for. It is not an answer in the
conversation, so viewers do not see it being written; its text is in the summary, if that passes the checks.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from history.answers.assembly import Assembler
from history.answers.events import SurrogateJoiner
from history.context import RENDERER_VERSION, Context
from history.context.compression import (
    CompressionPlan,
    CompressionPolicy,
    Problem,
    ProblemCode,
    RecordLine,
    SummaryOutcome,
    SummarySpan,
    as_pieces,
    ask_for_summary,
    earlier_summary,
    find_problem,
    parts_that_fit,
    record_budget,
    required_identifiers,
)
from history.context.tokens import estimate_context
from history.db.transactions import writing
from history.dialects import CallOptions, Switches
from history.entries import ModelOutput, entry_to_json, thaw
from history.models import Exchange, Session
from history.record import exchanges
from relay.agents import spending
from relay.agents.requests import ANSWER_TOKENS, UNKNOWN_WINDOW, context_limit
from relay.agents.settings import AgentSettings
from relay.agents.spending import Reservation
from relay.agents.turn import Turn, finish_if_cancelled
from relay.errors import RelayError
from relay.providers.base import CallNotes, Route
from relay.runtime.async_db import in_database_after_outages
from relay.usage import allowances
from relay.usage.amounts import Use

# The role of a call to the model that summarises: it is no answer of the conversation.
SUMMARISER = "summariser"
# A summary that is refused is requested once more, with the reason. The second refusal, of any part, is the last.
TRIES = 2
# Less of a record than this in one question would never come to an end.
LEAST_ROOM = 120
WORDS_PER_TOKEN = 0.6


async def summarise(
    turn: Turn, stretch: SummarySpan, plan: CompressionPlan, policy: CompressionPolicy, *, route: Route, leaf: int
) -> SummaryOutcome:
    """A summary of this stretch, or why there is none."""
    calls = _SummaryCalls(turn, route, policy, leaf, required_identifiers(stretch.pieces))
    names = {"provider": route.provider.name, "model": route.model.name}
    try:
        pieces = as_pieces(stretch.pieces, plan.masked, session_id=str(turn.session_id))
        text, problem = await _summary_of(calls, stretch, parts_that_fit(pieces, budget=calls.input_limit(plan.factor)))
    except RelayError as error:
        text, problem = "", Problem(code=ProblemCode.FAILED, values={"error": type(error).__name__})
    return SummaryOutcome(stretch=stretch, text="" if problem else text, problem=problem, **names)


async def _summary_of(
    calls: _SummaryCalls, stretch: SummarySpan, parts: list[list[RecordLine]]
) -> tuple[str, Problem | None]:
    """Part by part, each with the summary so far, which is looked at each time."""
    so_far, problem, tries = "", None, TRIES
    left = [*parts]
    while left:
        required = calls.required if len(left) == 1 else ()
        text = await calls.request([*calls.earlier(so_far), *left[0]], keep=required, problem=problem)
        problem = find_problem(text, stretch, required=required)
        if problem is None:
            so_far, left = text, left[1:]
        elif (tries := tries - 1) == 0:
            return "", problem
    return so_far, None


@dataclass(frozen=True, slots=True)
class _SummaryCalls:
    """What all questions of one summary have in common."""

    turn: Turn
    route: Route
    policy: CompressionPolicy
    leaf: int
    required: tuple[str, ...] = field(default=())

    @property
    def words(self) -> int:
        return max(40, int(self.policy.summary_tokens * WORDS_PER_TOKEN))

    def input_limit(self, factor: float) -> int:
        """How much of the record fits into one question, with the summary so far beside it."""
        whole = int(context_limit(self.route.model, self._agent) / factor)
        return max(LEAST_ROOM, record_budget(whole, words=self.words, keep=self.required) - self._overhead)

    @property
    def _agent(self) -> AgentSettings:
        """An agent that is to answer briefly may still write a whole summary."""
        agent = self.turn.agent
        return replace(agent, max_answer_tokens=max(agent.max_answer_tokens or 0, ANSWER_TOKENS))

    @property
    def _overhead(self) -> int:
        """A summary so far, and the reason why one was refused."""
        return self.policy.summary_tokens + 40

    def earlier(self, text: str) -> list[RecordLine]:
        """The summary so far, no longer than a summary may be."""
        return [earlier_summary(text, budget=self.policy.summary_tokens)] if text else []

    async def request(self, pieces: list[RecordLine], *, keep: tuple[str, ...], problem: Problem | None) -> str:
        context = ask_for_summary(pieces, words=self.words, keep=keep, problem=problem.text if problem else "")
        output = await _answer_to(context, self)
        return output.text.strip()

    def options(self) -> CallOptions:
        window = self.route.model.window or UNKNOWN_WINDOW
        most = min(self._agent.max_answer_tokens or ANSWER_TOKENS, window // 4)
        return CallOptions(
            model=self.route.model.name,
            provider=self.route.provider.name,
            max_tokens=most,
            stream=True,
            switches=self.route.model.switches or Switches(),
        )


async def _answer_to(context: Context, calls: _SummaryCalls) -> ModelOutput:
    turn, options = calls.turn, calls.options()
    tokens = estimate_context(context.entries, system=context.system)
    limits = await in_database_after_outages(allowances.check_budget, turn.user)
    reservation = await spending.reserve(
        turn.user.pk, limits, route=calls.route, read=tokens, written=options.max_tokens
    )
    try:
        exchange = await in_database_after_outages(_open, context, calls, tokens)
        return await _answered(context, options, calls, exchange, reservation)
    finally:
        reservation.release()


async def _answered(
    context: Context, options: CallOptions, calls: _SummaryCalls, exchange: Exchange, reservation: Reservation
) -> ModelOutput:
    route, notes, surrogates, begun = calls.route, CallNotes(), SurrogateJoiner(), time.monotonic()
    assembler = Assembler(provider=route.provider.name, model=route.model.name, agent=calls.turn.agent.name)
    end_reason, is_answered = "server_error", False
    try:
        async with aclosing(route.provider.call(context, options, notes=notes)) as events:
            async for event in events:
                is_answered = True
                assembler.feed(surrogates.join(event))
        for event in surrogates.rest():
            assembler.feed(event)
        end_reason = "done"
    except RelayError:
        end_reason = "upstream_error"
        raise
    except asyncio.CancelledError:
        end_reason = "stopped"
        raise
    finally:
        output = assembler.output(duration=time.monotonic() - begun)
        spent = reservation.use_of(output, is_done=end_reason == "done", is_answered=is_answered)
        cost = reservation.price(output.usage) if output.usage else Decimal(0)

        async def store() -> None:
            async with reservation.settling(spent):
                await in_database_after_outages(_end, exchange, output, calls, notes, end_reason, cost, spent)

        with exchanges.being_stored(exchange.pk):
            await finish_if_cancelled(store())
        calls.turn.budget.spend(spent.tokens)
    return output


def _open(context: Context, calls: _SummaryCalls, tokens: int) -> Exchange:
    turn, route = calls.turn, calls.route
    session = Session.objects.select_related("owner", "api_key").get(pk=turn.session_id)
    return exchanges.open_exchange(
        session,
        owner=session.owner,
        after=calls.leaf,
        inputs={"role": SUMMARISER, "system": context.system, "record": context.entries[0].content},
        agent=turn.agent.name,
        provider=route.provider.name,
        model=route.model.name,
        dialect=route.provider.dialect,
        renderer_version=RENDERER_VERSION,
        estimated_tokens=tokens,
        metadata={**turn.client, "role": SUMMARISER},
    )


def _end(
    exchange: Exchange,
    output: ModelOutput,
    calls: _SummaryCalls,
    notes: CallNotes,
    end_reason: str,
    cost: Decimal,
    spent: Use,
) -> None:
    """Record tokens and cost of the call. It is not an answer of the conversation."""
    usage = output.usage
    fields: dict[str, Any] = {"attempts": max(1, notes.attempts), "request_hash": notes.request_hash}
    if usage:
        fields["usage"] = thaw(entry_to_json(output)["usage"])
    with writing():
        exchanges.finish(exchange, None, end_reason=end_reason, cost=cost, **fields)
        if spent:
            allowances.note_usage(calls.turn.user, tokens=spent.tokens, cost=spent.cost)
