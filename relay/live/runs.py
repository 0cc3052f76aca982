"""Start, stop and end of runs. A run outlives the socket that started it.

A run is a task of this process and a row that every process can read. It sends numbered frames to the sockets of its
session (`relay.live.frames`), notes its partial answer in the database for other processes, and always ends with an
outcome: done, waiting for a user, stopped, failed, or lost with its process (`relay.live.lost_runs`). To stop it, any
process writes that into its row, which the process of the run reads once a second.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from history.db import bulk
from history.db.parameters import among
from history.db.prepared import prepared_update
from history.db.transactions import writing
from history.models import Session
from relay.agents import loop
from relay.agents.turn import TurnFailed, TurnInput
from relay.errors import RelayError
from relay.live import groups
from relay.live.run_task import RunTask, local_tasks
from relay.models import QueuedMessage, Run
from relay.models.runs import RunQuerySet, stored_run
from relay.runtime import process_locks
from relay.runtime.async_db import in_database, in_database_after_outages
from relay.runtime.event_loop import start_task

logger = logging.getLogger(__name__)
DRAIN_SECONDS = 5.0
# Called by the event loop with the task of a run that has ended: its result is the run, if its queue may continue.
OnEnd = Callable[[asyncio.Task[Run | None]], None]


def create_run(turn: TurnInput, *, follows: UUID | None = None) -> UUID:
    """The row of a run. `follows`: the run whose end sent the message that this one answers."""
    with writing(savepoint=False):
        run = bulk.new(
            Run,
            session_id=turn.session_id,
            owner_id=turn.user.pk,
            agent=turn.agent.name,
            model=turn.model,
            origin=turn.leaf,
            leaf=turn.leaf,
            follows=follows,
            process=process_locks.name_here(),
        )
        bulk.insert(Run, [run])
    return run.id


async def start_run(
    turn: TurnInput, on_end: OnEnd, *, run_id: UUID | None = None
) -> tuple[UUID, asyncio.Task[Run | None]]:
    """Start to answer; returns when the row is written. `run_id`: the row exists already."""
    if run_id is None:
        run_id = await in_database(create_run, turn)
    local_tasks[run_id] = run_task = RunTask(turn, run_id=run_id)
    run_task.run_subagent = partial(_run_subagent, run_id, on_end)
    run_task.task = task = start_task(_execute(run_task))
    task.add_done_callback(on_end)
    _notify_other_pages(turn)
    return run_id, task


async def _run_subagent(caller_id: UUID, on_end: OnEnd, turn: TurnInput) -> Run:
    """Run an agent that another one calls, and wait for its end. If the caller is stopped, so is this run."""
    starting = asyncio.ensure_future(start_run(turn, on_end))
    try:
        run_id, task = await asyncio.shield(starting)
        await asyncio.wait([task])
    except asyncio.CancelledError:
        run_id, task = await starting
        if run_id in local_tasks:
            local_tasks[run_id].stop(local_tasks[caller_id].stop_reason or "stopped")
        await asyncio.wait([task])
        raise
    return await in_database_after_outages(Run.objects.get, pk=run_id)


async def _execute(run_task: RunTask) -> Run | None:
    sender = asyncio.get_running_loop().create_task(run_task.send_pieces())
    outcome, error = Run.Outcome.FAILED, ""
    try:
        outcome = await loop.run_turn(run_task.turn, run_task)
    except asyncio.CancelledError:
        outcome = Run.Outcome.LOST if run_task.stop_reason == "server_stopped" else Run.Outcome.STOPPED
        error = run_task.stop_reason if outcome is Run.Outcome.LOST else ""
        await loop.close_open_calls(run_task.turn, run_task)
    except TurnFailed as failed:
        error = f"{type(failed.error).__name__}:{failed.error.kind}"
    except RelayError as refused:
        error = type(refused).__name__
        await loop.store_refusal(run_task.turn, run_task, refused)
    except Exception:
        logger.exception("A run failed.")
        error = "internal"
    finally:
        sender.cancel()
    return await _end(run_task, outcome, error)


async def _end(run_task: RunTask, outcome: Run.Outcome, error: str) -> Run | None:
    """Without a database the row is not written. Then the sweeper ends the run, because its heartbeats stop."""
    try:
        run = await in_database_after_outages(_store_end, run_task, outcome, error)
    finally:
        local_tasks.pop(run_task.id, None)
    if run is None:
        logger.info("A run ended after its session was removed.")
        return None
    run_task.send_end(run)
    _notify_other_pages(run_task.turn)
    return None if run_task.stop_reason == "server_stopped" else run


def _store_end(run_task: RunTask, outcome: Run.Outcome, error: str) -> Run | None:
    """None: the session was removed for good, and the rows of its runs with it."""
    with writing():
        # A message that is sent at this moment is queued before this, or sees that the run has ended.
        Session.objects.lock(run_task.turn.session_id)
        # The sweeper may have ended the run as lost during an outage of the database.
        _set_end(run_task.id, timezone.now(), str(outcome), error)
        run = stored_run.first(run_task.id)
        if run is not None:
            run.has_queue = bool(QueuedMessage.objects.waiting_in(run.session_id))
        if run is not None and not Run.Outcome(run.outcome).is_success:
            QueuedMessage.objects.hold(run.session_id, run.leaf)
    return run


@prepared_update
def _set_end(run_id: UUID, now: datetime, outcome: str, error: str) -> tuple[RunQuerySet, dict[str, Any]]:
    open_or_lost = Q(ended_at=None) | Q(outcome=Run.Outcome.LOST)
    return Run.objects.filter(open_or_lost, pk=run_id), {"ended_at": now, "outcome": outcome, "error": error}


def _notify_other_pages(turn: TurnInput) -> None:
    """The sidebars of the user, and the sessions of the agents that called this one."""
    groups.notify_sidebar(turn.user.pk, turn.session_id)
    for session_id in turn.callers:
        groups.notify_session(session_id)


def is_local(run_id: UUID) -> bool:
    return run_id in local_tasks


def request_stop_in_session(session_id: UUID, run_id: UUID | None = None) -> None:
    """Stop one run of a session, or all, in any process. Those of this process are stopped at once."""
    stopped = [run.pk for run in Run.objects.running_in(session_id) if run_id in (None, run.pk)]
    for pk in stopped:
        if task := local_tasks.get(pk):
            task.loop.call_soon_threadsafe(task.stop, "stopped")
    if stopped:
        with writing():
            rows = Run.objects.running().filter(pk__in=stopped, stop_requested_at=None)
            rows.update(stop_requested_at=timezone.now())


def send_heartbeats() -> None:
    """A job of every process: note that its runs are alive, and stop those that another process asks to stop."""
    tasks = dict(local_tasks)
    if not tasks:
        return
    with writing():
        Run.objects.running().filter(pk__in=among(tasks)).update(heartbeat_at=timezone.now())
    stops = Run.objects.filter(pk__in=among(tasks), stop_requested_at__isnull=False).values_list("pk", flat=True)
    for run_id in stops:
        tasks[run_id].loop.call_soon_threadsafe(tasks[run_id].stop, "stopped")


async def stop_all() -> None:
    """Stop every run of this process at its shutdown; partial answers are stored."""
    tasks = [run_task.task for run_task in local_tasks.values() if run_task.task is not None]
    for run_task in list(local_tasks.values()):
        run_task.stop("server_stopped")
    if not tasks:
        return
    _, unfinished = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
    if unfinished:
        logger.error("%d answers could not be stored before the end of the process.", len(unfinished))
