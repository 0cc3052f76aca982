"""Calls to a model that write a summary, part by part, checked before use.

Each question is a call like any other: written down before it is sent, counted and paid for. It is not an answer in the
conversation, so viewers do not see it being written; its text is in the summary, if that passes the checks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from history.context import Context
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
from history.dialects import CallOptions, Switches
from history.models import Session
from relay.agents.model_call import open_call
from relay.agents.requests import ANSWER_TOKENS, UNKNOWN_WINDOW, RenderedCall, context_limit
from relay.agents.settings import AgentSettings
from relay.agents.turn import Turn, finish_if_cancelled
from relay.errors import RelayError
from relay.models.runs import SUMMARISER
from relay.providers.base import Route
from relay.runtime.async_db import in_database_after_outages
from relay.usage import allowances

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
        earlier = [earlier_summary(so_far, budget=calls.policy.summary_tokens)] if so_far else []
        text = await calls.request([*earlier, *left[0]], keep=required, problem=problem)
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
    required: tuple[str, ...]

    @property
    def words(self) -> int:
        return max(40, int(self.policy.summary_tokens * WORDS_PER_TOKEN))

    def input_limit(self, factor: float) -> int:
        """How much of the record fits into one question, with the summary so far beside it."""
        whole = int(context_limit(self.route.model, self._agent) / factor)
        overhead = self.policy.summary_tokens + 40  # a summary so far, and the reason why one was refused
        return max(LEAST_ROOM, record_budget(whole, words=self.words, keep=self.required) - overhead)

    @property
    def _agent(self) -> AgentSettings:
        """An agent that is to answer briefly may still write a whole summary."""
        agent = self.turn.agent
        return replace(agent, max_answer_tokens=max(agent.max_answer_tokens or 0, ANSWER_TOKENS))

    async def request(self, pieces: list[RecordLine], *, keep: tuple[str, ...], problem: Problem | None) -> str:
        context = ask_for_summary(pieces, words=self.words, keep=keep, problem=problem.text if problem else "")
        end_reason = "server_error"
        async with open_call(self.turn, await in_database_after_outages(self._render, context)) as call:
            try:
                await call.stream()
                end_reason = "done"
            except RelayError:
                end_reason = "upstream_error"
                raise
            except asyncio.CancelledError:
                end_reason = "stopped"
                raise
            finally:
                stored = await finish_if_cancelled(call.store(end_reason))
        return stored.output.text.strip()

    def _render(self, context: Context) -> RenderedCall:
        turn, model, role = self.turn, self.route.model, {"role": SUMMARISER}
        most = min(self._agent.max_answer_tokens or ANSWER_TOKENS, (model.window or UNKNOWN_WINDOW) // 4)
        return RenderedCall(
            session=Session.objects.select_related("owner", "api_key").get(pk=turn.session_id),
            leaf=self.leaf,
            role=SUMMARISER,
            agent=turn.agent.name,
            context=context,
            options=CallOptions(
                model=model.name,
                provider=self.route.provider.name,
                max_tokens=most,
                stream=True,
                switches=model.switches or Switches(),
            ),
            route=self.route,
            limits=allowances.check_budget(turn.user),
            tokens=estimate_context(context.entries, system=context.system),
            inputs={**role, "system": context.system, "record": context.entries[0].content},
            metadata={**turn.client, **role},
        )
