"""End of lost runs: runs whose process was killed or has hung. Their partial answers become messages."""

from datetime import timedelta

from django.utils import timezone

from history.db.transactions import writing
from history.record import exchanges
from relay.live import groups
from relay.live.run_task import local_tasks
from relay.models import QueuedMessage, Run
from relay.runtime import process_locks

RUN_TIMEOUT = timedelta(seconds=30)  # without a sign of life, a run counts as lost
STORE_TIMEOUT = timedelta(minutes=1)
ENDED_RUNS_KEPT = timedelta(days=7)
# A tool command whose process gave no sign for so long was not carried out to its end; no tool may take longer.
CLAIM_TIMEOUT = timedelta(minutes=15)


def sweep() -> None:
    """End runs that have had no heartbeat for a while, and delete old ones."""
    try:
        exchanges.sweep()
    finally:
        now = timezone.now()
        for run in Run.objects.filter(ended_at=None, heartbeat_at__lt=now - RUN_TIMEOUT):
            # After an outage of the database, one of our own has an old sign of life and is well.
            if run.pk not in local_tasks and not _is_being_stored(run) and _end_lost(run):
                groups.notify_session(run.session_id)
        for session in QueuedMessage.objects.filter(claimed_at__lt=now - CLAIM_TIMEOUT).hold_claimed():
            groups.notify_session(session)
        with writing():
            Run.objects.filter(ended_at__lt=now - ENDED_RUNS_KEPT).delete()


def end_runs_of_dead_processes() -> None:
    """End runs of dead processes of this machine at once: at the start, and soon after a crash."""
    with process_locks.dead_processes() as names:
        for session in QueuedMessage.objects.filter(process__in=names).hold_claimed() if names else ():
            groups.notify_session(session)
        for run in Run.objects.filter(ended_at=None, process__in=names) if names else ():
            exchange = run.find_open_exchange()
            if exchange is not None:
                noted = exchanges.partial_of(exchange)
                # If the clock was set back, its heartbeat is in the future.
                silent = max(timezone.now(), exchange.heartbeat_at + timedelta(microseconds=1))
                exchanges.finish(exchange, noted, end_reason=exchanges.SERVER_LOST, silent_since=silent)
            if _end_lost(run):
                groups.notify_session(run.session_id)


def _is_being_stored(run: Run) -> bool:
    """Whether its partial answer will be a message soon. After a minute, the run is ended without it."""
    exchange = run.find_open_exchange()
    return exchange is not None and exchange.heartbeat_at > timezone.now() - exchanges.LIVES_FOR - STORE_TIMEOUT


def _end_lost(run: Run) -> bool:
    """False if the run has had a heartbeat meanwhile."""
    leaf = run.find_lost_answer()
    silent = Run.objects.filter(pk=run.pk, ended_at=None, heartbeat_at=run.heartbeat_at)
    with writing():
        is_ended = bool(silent.update(ended_at=timezone.now(), outcome=Run.Outcome.LOST, leaf=leaf or run.leaf))
        if is_ended:
            QueuedMessage.objects.hold(run.session_id, leaf or run.leaf)
    return is_ended
