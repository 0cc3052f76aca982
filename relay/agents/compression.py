"""Summaries of older turns: when a context is full, or when a user, a program or the agent requests one.

What is summarised is decided in `history.context.compression`, what the summary says by a model (`summarising`). The
outcome is an entry on the path of the run like any other, so the next call is made from it, and so is every one after a
restart. If it fails, the conversation continues: without a summary, with less of the old results, and
at worst without the oldest turns, which stay in the record.
"""

import logging
from dataclasses import replace
from uuid import UUID

from django.conf import settings

from history.context import ContextOptions, masked_results
from history.context.compression import (
    CompressionPlan,
    CompressionPolicy,
    SummaryOutcome,
    entries_of_plan,
    make_plan,
    stretch_between,
)
from history.db.transactions import writing
from history.entries import Entry, Retracted, Summary
from history.models import Session
from history.record import selectors
from history.record.branches import behind_notes
from relay.agents.environment import environment_options
from relay.agents.requests import compression_limit, context_limit, read_calibration
from relay.agents.settings import AgentSettings
from relay.agents.summarising import summarise
from relay.agents.turn import (
    CompressionRequest,
    Turn,
    TurnObserver,
    finish_if_cancelled,
    set_leaf,
    set_summarising,
    store_entries,
    take_compression_request,
)
from relay.models import Run
from relay.providers.base import Model, Route
from relay.providers.registry import router
from relay.runtime.async_db import in_database_after_outages
from relay.tools.base import ToolContext

logger = logging.getLogger(__name__)

# So many turns stay if a summary is requested although the context is not full.
KEPT_WHEN_REQUESTED = 2
LEAST_SUMMARY, MOST_SUMMARY = 80, 1_500
# Writing a summary again must not leave anything out.
UNBOUNDED = 2**31


def read_run_updates(run_id: UUID, session_id: UUID, leaf: int) -> tuple[int, CompressionRequest | None]:
    """The leaf behind notes that were added to the path of the run, and a request to compress, taken once."""
    now = behind_notes(session_id, leaf)
    if now != leaf:
        with writing():
            set_leaf(run_id, now)
    return now, CompressionRequest(why="asked") if take_compression_request(run_id) else None


async def run_compression(turn: Turn, observer: TurnObserver, request: CompressionRequest) -> Run.Outcome:
    """A run that only writes a summary."""
    route = router().route(request.model or turn.agent.model_for("executor", picked=turn.model))
    await compress(turn, observer, turn.leaf, route=route, request=request)
    return Run.Outcome.DONE


async def compress_if_requested(turn: Turn, observer: TurnObserver, leaf: int) -> None:
    """A request that came during the last call of a run."""
    leaf, request = await in_database_after_outages(read_run_updates, observer.id, turn.session_id, leaf)
    if request is not None:
        route = router().route(turn.agent.model_for("executor", picked=turn.model))
        await compress(turn, observer, leaf, route=route, request=request)


async def compress(turn: Turn, observer: TurnObserver, leaf: int, *, route: Route, request: CompressionRequest) -> int:
    """The entry to continue from: a summary, or `leaf` itself. Raises only when it is cancelled."""
    if not route.model.can_summarise:
        return leaf
    try:
        plan, policy = await in_database_after_outages(plan_compression, turn, leaf, model=route.model, request=request)
        if not plan:
            return leaf
        written = await _write_summaries(turn, observer, leaf, plan, policy, route=route) if plan.stretches else []
        name = turn.agent.name
        entries: list[Entry] = [*entries_of_plan(plan, written, policy, why=request.why, agent=name)]
        if request.instead_of and any(one.text for one in written):
            entries.insert(0, Retracted(seq=request.instead_of, agent=name, reason="again"))
        return await store_entries(turn, observer, *entries, after=leaf) if entries else leaf
    except Exception:
        logger.warning("A compression failed; the conversation continues without it.", exc_info=True)
        return leaf


async def _write_summaries(
    turn: Turn, observer: TurnObserver, leaf: int, plan: CompressionPlan, policy: CompressionPolicy, *, route: Route
) -> list[SummaryOutcome]:
    """One summary after the other; viewers see that older messages are being summarised."""
    await _show_summarising(observer, is_on=True)
    try:
        return [await summarise(turn, one, plan, policy, route=route, leaf=leaf) for one in plan.stretches]
    finally:
        await finish_if_cancelled(_show_summarising(observer, is_on=False))


async def _show_summarising(observer: TurnObserver, *, is_on: bool) -> None:
    await in_database_after_outages(set_summarising, observer.id, is_on=is_on)
    await observer.on_summarising(is_on=is_on)


# What is to be done.


def plan_compression(
    turn: Turn, leaf: int, *, model: Model, request: CompressionRequest
) -> tuple[CompressionPlan, CompressionPolicy]:
    """Plan from the present context: messages that earlier summaries replace are not read."""
    session = Session.objects.get(pk=turn.session_id)
    policy = make_policy(model, turn.agent, request)
    if request.instead_of:
        plan = _plan_again(session, leaf, summary=request.instead_of, model=model)
        return plan, replace(policy, max_tokens=UNBOUNDED)
    around, _ = environment_options(
        ToolContext(user=turn.user, session_id=session.pk, agent=turn.agent.name), turn.agent
    )
    options = ContextOptions(max_turns=None, calibration=read_calibration(model.name), **around)
    taken = selectors.snapshot(session, leaf=leaf, options=options)
    return make_plan(taken, options, policy), policy


def make_policy(model: Model, agent: AgentSettings, request: CompressionRequest) -> CompressionPolicy:
    """Half of the context is left for later turns."""
    limit = compression_limit(model, agent) or context_limit(model, agent)
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
    stretch = stretch_between(behind, first=old.first, last=old.last, within_turn=old.within_turn)
    stretches = (stretch,) if stretch else ()
    return CompressionPlan(
        stretches=stretches, factor=read_calibration(model.name), masked=masked_results(behind.nodes)
    )
