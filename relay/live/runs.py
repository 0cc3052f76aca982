"""Turns that are being answered here: they outlive the socket that asked for them.

A run is a task of this process and a row that every process can read. It tells whoever watches the session how it goes
by numbered frames (`relay.live.frames`), notes the answer so far for everybody else, and ends with an outcome, whatever
happens: done, waiting for a person, stopped, failed, or lost with its process. To stop it, ask its row: whichever
process it lives in looks there once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID, uuid4

from django.db.models import Q
from django.utils import timezone

from history.db.in_list import among
from history.db.transactions import writing
from history.models import Exchange, Session
from history.record import exchanges
from relay.agents import loop
from relay.agents.turn import Turn, TurnFailed
from relay.errors import RelayError
from relay.live import groups
from relay.live.queued_messages import ENDED_WELL, hold
from relay.live.run_task import LiveRun, PartialAnswer, keep, running
from relay.live.running import open_exchange_of
from relay.models import Run
from relay.runtime import process_locks
from relay.runtime.async_db import in_database, in_database_after_outages

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
MOST_RECENT = 50
OnEnd = Callable[[Run], Awaitable[None]]


# Beginning and ending.


async def start(turn: Turn, *, on_end: OnEnd | None = None, run_id: UUID | None = None) -> UUID:
    """Begin to answer; returns as soon as that is written down. `run_id`: its row is there already."""
    return (await _begin(turn, on_end, run_id))[0].id


async def _begin(turn: Turn, on_end: OnEnd | None, run_id: UUID | None = None) -> tuple[LiveRun, asyncio.Task[None]]:
    if run_id is None:
        run_id = await in_database(write_down, turn)
    live = LiveRun(turn, run_id=run_id, below=partial(_answer_below, on_end))
    running[live.id] = live
    live.task = task = keep(asyncio.get_running_loop().create_task(_carry(live, on_end)))
    await _tell_others(turn)
    return live, task


async def _answer_below(on_end: OnEnd | None, above: LiveRun, turn: Turn) -> Run:
    """A run of its own for an agent that another one calls, which waits for it. If that one is ended, so is this."""
    beginning = asyncio.ensure_future(_begin(turn, on_end))
    try:
        live, task = await asyncio.shield(beginning)
        await asyncio.wait([task])
    except asyncio.CancelledError:
        live, task = await beginning
        live.stop(above.stop_reason or "stopped")
        await asyncio.wait([task])
        raise
    return await in_database_after_outages(Run.objects.get, pk=live.id)


def write_down(turn: Turn, *, follows: UUID | None = None) -> UUID:
    """The row of a run, in the transaction that stores what it answers. `follows`: the run whose end sent that."""
    with writing():
        run = Run.objects.create(
            pk=uuid4(),
            session=turn.session_id,
            owner=turn.user,
            agent=turn.agent.name,
            model=turn.model,
            origin=turn.leaf,
            leaf=turn.leaf,
            follows=follows,
            process=process_locks.name_here(),
        )
    return run.pk


async def _carry(live: LiveRun, on_end: OnEnd | None) -> None:
    pump = asyncio.get_running_loop().create_task(live.pump())
    outcome, error = Run.Outcome.FAILED, ""
    try:
        outcome = await loop.answer(live.turn, live)
    except asyncio.CancelledError:
        outcome = Run.Outcome.LOST if live.stop_reason == "server_stopped" else Run.Outcome.STOPPED
        error = live.stop_reason if outcome is Run.Outcome.LOST else ""
        await loop.close(live.turn, live)
    except TurnFailed as failed:
        error = f"{type(failed.error).__name__}:{failed.error.kind}"
    except RelayError as refused:
        error = type(refused).__name__
        await loop.refuse(live.turn, live, refused)
    except Exception:
        logger.exception("A run failed.")
        error = "internal"
    finally:
        pump.cancel()
    await _end(live, outcome, error, on_end)


async def _end(live: LiveRun, outcome: Run.Outcome, error: str, on_end: OnEnd | None) -> None:
    """Whatever happens, it is not running here any more: without signs of life the sweep ends it."""
    try:
        run = await in_database_after_outages(_write_end, live.id, outcome, error)
    finally:
        running.pop(live.id, None)
    await live.ended(run)
    await _tell_others(live.turn)
    if on_end is not None and live.stop_reason != "server_stopped":
        try:
            await on_end(run)
        except Exception:
            logger.exception("What follows a run failed.")


def _write_end(run_id: UUID, outcome: Run.Outcome, error: str) -> Run:
    with writing():
        run = Run.objects.get(pk=run_id)
        # A message that is sent just now joins the queue before this, or finds the run ended.
        Session.objects.lock(run.session)
        # One that was taken for lost during an outage has come to its end after all.
        open_or_lost = Q(ended_at=None) | Q(outcome=Run.Outcome.LOST)
        Run.objects.filter(open_or_lost, pk=run_id).update(ended_at=timezone.now(), outcome=outcome, error=error)
        run.refresh_from_db()
        if run.outcome not in ENDED_WELL:
            hold(run.session, run.leaf)
    return run


async def _tell_others(turn: Turn) -> None:
    """Those who look at another session: of the person, or of whoever called this agent."""
    await groups.tell_person(turn.user.pk, {"type": "rail.changed", "session": str(turn.session_id)})
    for session_id in turn.above:
        await groups.tell_session(session_id, groups.CHANGED)


# Watching and stopping, from any process.


def is_here(run_id: UUID) -> bool:
    return run_id in running


def all_here() -> list[UUID]:
    return list(running)


async def so_far(run_id: UUID) -> PartialAnswer | None:
    """The answer of a run up to now: from this process, or as its own last noted it. None: no answer is on its way."""
    return so_far_here(run_id) or await in_database(_so_far_elsewhere, run_id)


def so_far_here(run_id: UUID) -> PartialAnswer | None:
    live = running.get(run_id)
    return live.so_far() if live else None


def _so_far_elsewhere(run_id: UUID) -> PartialAnswer | None:
    run = Run.objects.filter(pk=run_id, ended_at=None).first()
    exchange = open_exchange_of(run) if run else None
    return noted(exchange) if exchange else None


def noted(exchange: Exchange) -> PartialAnswer:
    """The answer so far, as the process that writes it noted it last."""
    output = exchanges.partial_of(exchange)
    told = output.metadata if output else {}
    names, model = tuple(told.get("names", ())), f"{exchange.provider}/{exchange.model}"
    return PartialAnswer(str(exchange.pk), int(told.get("n", 0)), output, names, exchange.after, model=model)


def running_in(session_id: UUID) -> list[Run]:
    return list(Run.objects.filter(session=session_id, ended_at=None).order_by("started_at"))


def ended_in(session_id: UUID) -> set[UUID]:
    """The runs of a session that ended last."""
    ended = Run.objects.filter(session=session_id, ended_at__isnull=False).order_by("-started_at")
    return set(ended.values_list("pk", flat=True)[:MOST_RECENT])


def request_stop(run_id: UUID) -> None:
    """Ask whichever process it lives in; ours at once, also while the database is away."""
    if live := running.get(run_id):
        live.loop.call_soon_threadsafe(live.stop, "stopped")
    with writing():
        Run.objects.filter(pk=run_id, ended_at=None, stop_requested_at=None).update(stop_requested_at=timezone.now())


def request_stop_session(session_id: UUID) -> None:
    for run in running_in(session_id):
        request_stop(run.pk)


# The house looks after us.


def beat() -> None:
    """A sign of life of every run here, and a look whether somebody wants one to stop. Once a second."""
    here = dict(running)
    if not here:
        return
    with writing():
        Run.objects.filter(pk__in=among(here), ended_at=None).update(heartbeat_at=timezone.now())
    stops = Run.objects.filter(pk__in=among(here), stop_requested_at__isnull=False).values_list("pk", flat=True)
    for run_id in stops:
        here[run_id].loop.call_soon_threadsafe(here[run_id].stop, "stopped")


async def drain() -> None:
    """End every run of this process in good order: what there is of an answer is kept."""
    tasks = [live.task for live in running.values() if live.task is not None]
    for live in list(running.values()):
        live.stop("server_stopped")
    if not tasks:
        return
    _, unfinished = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
    if unfinished:
        logger.error("%d answers could not be stored before the end of the process.", len(unfinished))
