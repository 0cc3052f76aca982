"""Older turns become a summary: when a context is full, or when somebody asks, a person, a program or the agent itself.

What is summarised is decided in `history.context.compression`, what the summary says by a model (`summarising`). The
outcome is an entry on the path of the run like any other, so the next call is made from it, and so is every one after a
restart. Whatever goes wrong on the way, the conversation goes on: without a summary, with less of the old results, and
at worst without the oldest turns, which stay in the record.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.conf import settings

from history.context import ContextOptions, masked_results
from history.context.compression import (
    CompressionPlan,
    CompressionPolicy,
    Written,
    entries_of_plan,
    make_plan,
    stretch_between,
)
from history.db.transactions import writing
from history.entries import Entry, Retracted, Summary
from history.models import Session
from history.record import selectors
from history.record.branches import behind_notes
from relay.agents.environment import surroundings
from relay.agents.requests import calibration_of, full_at, room_of
from relay.agents.saving import keep, move, note_summarising, take_wish, to_the_end
from relay.agents.settings import AgentSettings
from relay.agents.summarising import summarise
from relay.agents.turn import CompressionRequest, Turn, Watcher
from relay.models import Run
from relay.providers.base import Model, Route
from relay.providers.registry import router
from relay.runtime.async_db import in_database_after_outages
from relay.tools.base import ToolContext

logger = logging.getLogger(__name__)

# Of whoever asks for a summary of what would still fit, so many turns stay.
KEPT_WHEN_ASKED = 2
LEAST_SUMMARY, MOST_SUMMARY = 80, 1_500
# Where another summary stands already, none is no reason to leave anything out.
UNBOUNDED = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be summarised, and for which model it must fit."""

    plan: CompressionPlan
    policy: CompressionPolicy
    wish: CompressionRequest

    @property
    def why(self) -> str:
        return self.wish.why


def look_around(run_id: UUID, session_id: UUID, leaf: int) -> tuple[int, CompressionRequest | None]:
    """Before each call: what was added to the run's own path meanwhile counts from now on, and a wish is heard once."""
    now = behind_notes(session_id, leaf)
    if now != leaf:
        with writing():
            move(run_id, now)
    return now, CompressionRequest(why="asked") if take_wish(run_id) else None


async def compress_alone(turn: Turn, watcher: Watcher, wish: CompressionRequest) -> Run.Outcome:
    """A run that answers nothing: somebody wants a summary."""
    route = router().route(wish.model or turn.agent.model_for("executor", picked=turn.model))
    await compress(turn, watcher, turn.leaf, route=route, wish=wish)
    return Run.Outcome.DONE


async def compress_if_asked(turn: Turn, watcher: Watcher, leaf: int) -> None:
    """A wish that came during the last call of a run."""
    leaf, wish = await in_database_after_outages(look_around, watcher.id, turn.session_id, leaf)
    if wish is not None:
        route = router().route(turn.agent.model_for("executor", picked=turn.model))
        await compress(turn, watcher, leaf, route=route, wish=wish)


async def compress(turn: Turn, watcher: Watcher, leaf: int, *, route: Route, wish: CompressionRequest) -> int:
    """The entry to go on from: a summary, or `leaf` itself. Never raises but when it is cancelled."""
    if not route.model.can_summarise:
        return leaf
    try:
        job = await in_database_after_outages(plan_for, turn, leaf, model=route.model, wish=wish)
        if not job.plan:
            return leaf
        written = await _written(turn, watcher, leaf, job=job, route=route) if job.plan.stretches else []
        entries = _entries(turn, job, written)
        return await keep(turn, watcher, *entries, after=leaf) if entries else leaf
    except Exception:
        logger.warning("A compression failed; the conversation goes on without it.", exc_info=True)
        return leaf


async def _written(turn: Turn, watcher: Watcher, leaf: int, *, job: Job, route: Route) -> list[Written]:
    """One summary after the other; whoever watches is told that this is what they wait for."""
    await _tell_of_it(watcher, is_on=True)
    try:
        return [await summarise(turn, one, job.plan, job.policy, route=route, leaf=leaf) for one in job.plan.stretches]
    finally:
        await to_the_end(_tell_of_it(watcher, is_on=False))


async def _tell_of_it(watcher: Watcher, *, is_on: bool) -> None:
    await in_database_after_outages(note_summarising, watcher.id, is_on=is_on)
    await watcher.summarising(is_on=is_on)


def _entries(turn: Turn, job: Job, written: Sequence[Written]) -> list[Entry]:
    entries: list[Entry] = [*entries_of_plan(job.plan, written, job.policy, why=job.why, agent=turn.agent.name)]
    if job.wish.instead_of and any(one.text for one in written):
        entries.insert(0, Retracted(seq=job.wish.instead_of, agent=turn.agent.name, reason="again"))
    return entries


# What is to be done.


def plan_for(turn: Turn, leaf: int, *, model: Model, wish: CompressionRequest) -> Job:
    """Reads what is told now, and no more: not what earlier summaries stand for."""
    session = Session.objects.get(pk=turn.session_id)
    policy = policy_for(model, turn.agent, wish)
    if wish.instead_of:
        plan = _plan_again(session, leaf, summary=wish.instead_of, model=model)
        return Job(plan=plan, policy=replace(policy, room=UNBOUNDED), wish=wish)
    around, _ = surroundings(ToolContext(user=turn.user, session_id=session.pk, agent=turn.agent.name), turn.agent)
    options = ContextOptions(max_turns=None, calibration=calibration_of(model.name), **around)
    taken = selectors.snapshot(session, leaf=leaf, options=options)
    return Job(plan=make_plan(taken, options, policy), policy=policy, wish=wish)


def policy_for(model: Model, agent: AgentSettings, wish: CompressionRequest) -> CompressionPolicy:
    """Half of what may be told is left for what is to come."""
    room = full_at(model, agent) or room_of(model, agent)
    if wish.why == "too_long":  # our count was too low, nobody knows by how much
        room //= 2
    keep = agent.keep_turns or settings.PARLEY_COMPRESS_KEEP_TURNS or None
    is_asked = wish.why in ("asked", "tool", "again")
    summary = max(LEAST_SUMMARY, min(room // 8, MOST_SUMMARY))
    return CompressionPolicy(
        target=room // 2,
        room=room,
        summary_tokens=summary,
        keep_turns=keep or (KEPT_WHEN_ASKED if is_asked else None),
        bulky=min(200, max(40, room // 20)),
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
    return CompressionPlan(stretches=stretches, factor=calibration_of(model.name), masked=masked_results(behind.nodes))
