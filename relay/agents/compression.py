"""Summaries of older turns: when a context is full, or when a user, a program or the agent requests one.

`history.context.compression` decides what is summarised, a model writes the summary (docs/internals/compression.md). If
it fails, the conversation continues with less of the old results, and at worst without the oldest turns. The call is
recorded and paid for like any other, but viewers do not see it being written.
"""

import asyncio
import logging
from dataclasses import dataclass, replace

from django.conf import settings

from history.context.compression import planning, summaries
from history.context.compression.planning import CompressionPlan, CompressionPolicy, SummaryOutcome, SummarySpan
from history.context.messages import masked_results
from history.context.tokens import estimate_context
from history.context.values import Context, ContextOptions, Remark
from history.dialects import CallOptions, Switches
from history.entries import Entry, Retracted, Summary
from history.models import Session
from history.record import selectors
from relay.agents.model_call import open_call
from relay.agents.requests import (
    ANSWER_TOKENS,
    UNKNOWN_WINDOW,
    RenderedCall,
    compression_limit,
    context_limit,
    environment_options,
    read_calibration,
)
from relay.agents.turn import (
    CompressionRequest,
    TurnInput,
    TurnObserver,
    finish_if_cancelled,
    read_updates,
    store_entries,
)
from relay.errors import RelayError
from relay.models import Agent
from relay.models.runs import SUMMARISER
from relay.providers.base import Model
from relay.providers.http import Route
from relay.providers.registry import router
from relay.runtime.async_db import in_database_after_outages
from relay.usage import allowances

logger = logging.getLogger(__name__)

# So many turns stay if a summary is requested although the context is not full.
KEPT_WHEN_REQUESTED = 2
LEAST_SUMMARY, MOST_SUMMARY = 80, 1_500
UNBOUNDED = 2**31  # writing a summary again must not leave anything out
# A summary that is refused is requested once more, with the reason. The second refusal, of any part, is the last.
TRIES = 2
# Less of a record than this in one question would never come to an end.
LEAST_RECORD = 120
WORDS_PER_TOKEN = 0.6


async def compress_at_end(turn: TurnInput, observer: TurnObserver, leaf: int) -> None:
    """Write the summary that is the whole turn, or that was requested during the last call of a run."""
    request = turn.compression
    if request is None:
        leaf, request = await in_database_after_outages(read_updates, observer.id, turn.session_id, leaf)
    if request is not None:
        route = router().route(request.model or turn.agent.model_for("executor", picked=turn.model))
        await compress(turn, observer, leaf, route=route, request=request)


async def compress(
    turn: TurnInput, observer: TurnObserver, leaf: int, *, route: Route, request: CompressionRequest
) -> int:
    """The entry to continue from: a summary, or `leaf` itself. Raises only when it is cancelled."""
    if not route.model.can_summarise:
        return leaf
    try:
        plan, policy = await in_database_after_outages(plan_compression, turn, leaf, model=route.model, request=request)
        if not plan:
            return leaf
        written = await _write_summaries(turn, observer, leaf, plan, policy, route=route) if plan.stretches else []
        name = turn.agent.name
        entries: list[Entry] = [*planning.entries_of_plan(plan, written, policy, why=request.why, agent=name)]
        if request.instead_of and any(one.text for one in written):
            entries.insert(0, Retracted(seq=request.instead_of, agent=name, reason="again"))
        return await store_entries(turn, observer, *entries, after=leaf) if entries else leaf
    except Exception:
        logger.warning("A compression failed; the conversation continues without it.", exc_info=True)
        return leaf


async def _write_summaries(
    turn: TurnInput,
    observer: TurnObserver,
    leaf: int,
    plan: CompressionPlan,
    policy: CompressionPolicy,
    *,
    route: Route,
) -> list[SummaryOutcome]:
    """One summary after the other; viewers see that older messages are being summarised."""
    await observer.on_summarising(is_on=True)
    try:
        return [await summarise(turn, one, plan, policy, route=route, leaf=leaf) for one in plan.stretches]
    finally:
        await finish_if_cancelled(observer.on_summarising(is_on=False))


def plan_compression(
    turn: TurnInput, leaf: int, *, model: Model, request: CompressionRequest
) -> tuple[CompressionPlan, CompressionPolicy]:
    """Plan from the present context: messages that earlier summaries replace are not read."""
    session = Session.objects.get(pk=turn.session_id)
    policy = make_policy(model, turn.agent, request)
    if request.instead_of:
        plan = _plan_again(session, leaf, summary=request.instead_of, model=model)
        return plan, replace(policy, max_tokens=UNBOUNDED)
    around, _ = environment_options(turn.user, session.pk, turn.agent)
    options = ContextOptions(max_turns=None, calibration=read_calibration(model.name), **around)
    taken = selectors.snapshot(session, leaf=leaf, options=options)
    return planning.make_plan(taken, options, policy), policy


def make_policy(model: Model, agent: Agent, request: CompressionRequest) -> CompressionPolicy:
    """Half of the context is left for later turns."""
    limit = compression_limit(model, agent) or context_limit(model, agent.max_answer_tokens)
    if request.why == "too_long":  # our count was too low, by an unknown amount
        limit //= 2
    keep = agent.keep_turns or settings.PARLEY_COMPRESS_KEEP_TURNS or None
    is_asked = request.why in ("asked", "tool", "again")
    summary = max(LEAST_SUMMARY, min(limit // 8, MOST_SUMMARY))
    return CompressionPolicy(
        target=limit // 2,
        max_tokens=limit,
        summary_tokens=summary,
        keep_turns=keep or (KEPT_WHEN_REQUESTED if is_asked else None),
        bulky=min(200, max(40, limit // 20)),
        least=min(120, summary),
        is_asked=is_asked,
    )


def _plan_again(session: Session, leaf: int, *, summary: int, model: Model) -> CompressionPlan:
    """The same entries once more, as if the summary had been taken back."""
    behind = selectors.snapshot_behind(session, summary, leaf=leaf)
    old = next((node.entry for node in behind.nodes if node.seq == summary), None)
    if not isinstance(old, Summary) or not old.first:
        return CompressionPlan()
    stretch = planning.stretch_between(behind, first=old.first, last=old.last, within_turn=old.within_turn)
    stretches = (stretch,) if stretch else ()
    return CompressionPlan(
        stretches=stretches, factor=read_calibration(model.name), masked=masked_results(behind.nodes)
    )


@dataclass(frozen=True, slots=True)
class _SummaryCalls:
    """What all questions of one summary have in common."""

    turn: TurnInput
    route: Route
    policy: CompressionPolicy
    leaf: int
    required: tuple[str, ...]

    @property
    def words(self) -> int:
        return max(40, int(self.policy.summary_tokens * WORDS_PER_TOKEN))

    def input_limit(self, factor: float) -> int:
        """How much of the record fits into one question, with the summary so far beside it."""
        whole = int(context_limit(self.route.model, self.answer_tokens) / factor)
        overhead = self.policy.summary_tokens + 40  # a summary so far, and the reason why one was refused
        return max(LEAST_RECORD, summaries.record_budget(whole, words=self.words, keep=self.required) - overhead)

    @property
    def answer_tokens(self) -> int:
        """An agent that is to answer briefly may still write a whole summary."""
        return max(self.turn.agent.max_answer_tokens or 0, ANSWER_TOKENS)

    async def request(
        self, pieces: list[summaries.RecordLine], *, keep: tuple[str, ...], problem: Remark | None
    ) -> str:
        context = summaries.ask_for_summary(
            pieces, words=self.words, keep=keep, problem=problem.text if problem else ""
        )
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
        most = min(self.answer_tokens, (model.window or UNKNOWN_WINDOW) // 4)
        return RenderedCall(
            session=Session.objects.select_related("owner", "api_key").get(pk=turn.session_id),
            leaf=self.leaf,
            role=SUMMARISER,
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


async def summarise(
    turn: TurnInput, stretch: SummarySpan, plan: CompressionPlan, policy: CompressionPolicy, *, route: Route, leaf: int
) -> SummaryOutcome:
    calls = _SummaryCalls(turn, route, policy, leaf, summaries.required_identifiers(stretch.pieces))
    names = {"provider": route.provider.name, "model": route.model.name}
    try:
        pieces = list(summaries.record_lines(stretch.pieces, plan.masked, session_id=str(turn.session_id)))
        parts = summaries.parts_that_fit(pieces, budget=calls.input_limit(plan.factor))
        text, problem = await _summary_of(calls, stretch, parts)
    except RelayError as error:
        text, problem = "", Remark(code=summaries.ProblemCode.FAILED, values={"error": type(error).__name__})
    return SummaryOutcome(stretch=stretch, text="" if problem else text, problem=problem, **names)


async def _summary_of(
    calls: _SummaryCalls, stretch: SummarySpan, parts: list[list[summaries.RecordLine]]
) -> tuple[str, Remark | None]:
    """Part by part, each with the summary so far, which is looked at each time."""
    so_far, problem, tries = "", None, TRIES
    left = [*parts]
    while left:
        required = calls.required if len(left) == 1 else ()
        earlier = [summaries.earlier_summary(so_far, budget=calls.policy.summary_tokens)] if so_far else []
        text = await calls.request([*earlier, *left[0]], keep=required, problem=problem)
        problem = summaries.find_problem(text, stretch, required=required)
        if problem is None:
            so_far, left = text, left[1:]
        elif (tries := tries - 1) == 0:
            return "", problem
    return so_far, None
