"""Runs whose process is gone: they end as soon as what they had of an answer has become a message."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from history.db.transactions import writing
from history.models import Session
from history.record import exchanges
from relay.live import groups
from relay.live.queued_messages import hold_queue, release_claims_before, release_claims_of_processes
from relay.live.run_task import local_tasks
from relay.models import QueuedMessage, Run
from relay.runtime import process_locks

RUN_TIMEOUT = timedelta(seconds=30)  # without a sign of life, a run counts as lost
STORE_TIMEOUT = timedelta(minutes=1)
ENDED_RUNS_KEPT = timedelta(days=7)
# A tool command whose process gave no sign for so long was not carried out to its end; no tool may take longer.
CLAIM_TIMEOUT = timedelta(minutes=15)


def sweep() -> None:
    """Runs whose process is gone have ended, as soon as what they had of an answer has become a message."""
    try:
        exchanges.sweep()
    finally:
        now = timezone.now()
        for run in Run.objects.filter(ended_at=None, heartbeat_at__lt=now - RUN_TIMEOUT):
            # After an outage of the database, one of our own has an old sign of life and is well.
            if run.pk not in local_tasks and not _is_being_kept(run) and _end_lost(run):
                groups.notify_session(run.session)
        for session in release_claims_before(now - CLAIM_TIMEOUT):
            groups.notify_session(session)
        with writing():
            Run.objects.filter(ended_at__lt=now - ENDED_RUNS_KEPT).delete()
            # What waits in a session that is gone for good waits for nothing.
            forgotten = QueuedMessage.objects.filter(created_at__lt=now - ENDED_RUNS_KEPT)
            forgotten.exclude(session__in=Session.objects.values("pk")).delete()


def end_runs_of_dead_processes() -> None:
    """Runs of processes of this machine that are gone, ended at once: at the start, and soon after a crash."""
    with process_locks.dead_processes() as names:
        for session in release_claims_of_processes(names) if names else ():
            groups.notify_session(session)
        for run in Run.objects.filter(ended_at=None, process__in=names) if names else ():
            exchange = run.find_open_exchange()
            if exchange is not None:
                noted = exchanges.partial_of(exchange)
                # Where the clock was set back, its last sign of life lies ahead.
                silent = max(timezone.now(), exchange.heartbeat_at + timedelta(microseconds=1))
                exchanges.finish(exchange, noted, end_reason=exchanges.SERVER_LOST, silent_since=silent)
            if _end_lost(run):
                groups.notify_session(run.session)


def _is_being_kept(run: Run) -> bool:
    """Whether its answer will be a message soon. If it cannot, its run waits a minute, not for ever."""
    exchange = run.find_open_exchange()
    return exchange is not None and exchange.heartbeat_at > timezone.now() - exchanges.LIVES_FOR - STORE_TIMEOUT


def _end_lost(run: Run) -> bool:
    """False where it has come to life again meanwhile."""
    leaf = run.find_lost_answer()
    silent = Run.objects.filter(pk=run.pk, ended_at=None, heartbeat_at=run.heartbeat_at)
    with writing():
        is_ended = bool(silent.update(ended_at=timezone.now(), outcome=Run.Outcome.LOST, leaf=leaf or run.leaf))
        if is_ended:
            hold_queue(run.session, leaf or run.leaf)
    return is_ended
