"""Runs of a process that is gone end at the next start on its machine; those of others are left alone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from history.db.process_state import process_state
from history.entries import ModelInput, ModelOutput, Text
from history.models import Exchange, Message, Session
from history.record import exchanges, recorder
from project.accounts.models import User
from relay.live import lost_runs
from relay.models import QueuedMessage, Run
from relay.pages.panel import panel_of
from relay.runtime import process_locks

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(transactional_db: None, ada: User) -> Run:
    """A run of another process, which wrote for two seconds and was heard of a minute ago."""
    session, begun = recorder.start_session(owner=ada), timezone.now() - timedelta(seconds=60)
    asked = recorder.append(session, ModelInput(parts=(Text(text="one"),), at=begun), after=0)
    exchange = exchanges.open_exchange(session, owner=ada, after=asked.seq, model="m", provider="p")
    exchanges.note_partial(exchange.pk, ModelOutput(parts=(Text(text="Half an answer"),)))
    exchanges.flush_partials()
    process_state.reset()
    Exchange.objects.update(started_at=begun, heartbeat_at=begun + timedelta(seconds=2))
    return Run.objects.create(session=session, owner=ada, origin=asked.seq, leaf=asked.seq, started_at=begun)


def leave_file(run: Run, **facts: str) -> Path:
    """The file of the process that this run names."""
    process_locks.own_file.folder.mkdir(parents=True, exist_ok=True)
    run.process = f"process{run.pk.hex[:8]}"
    run.save()
    path = process_locks.own_file.folder / run.process
    here = {"host": socket.gethostname(), "boot": process_locks._boot_id()}
    path.write_text(json.dumps({**here, **facts}))
    return path


@contextmanager
def held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_runs_of_a_dead_process_end_with_what_was_noted(run: Run) -> None:
    path = leave_file(run)
    QueuedMessage.objects.create(session=run.session, owner=run.owner, text="two", after=run.leaf)
    with held_by_another_process(path) as holder:
        lost_runs.end_runs_of_dead_processes()
        run.refresh_from_db()
        assert run.ended_at is None, "its process lives"
        holder.kill()
        holder.wait()
        lost_runs.end_runs_of_dead_processes()
    run.refresh_from_db()
    assert run.outcome == Run.Outcome.LOST
    answer = Message.objects.get(session=run.session_id, seq=run.leaf)
    assert (answer.content, answer.status, answer.end_reason) == ("Half an answer", "interrupted", "server_lost")
    assert QueuedMessage.objects.get().held_at is not None
    assert not path.exists()


@pytest.mark.parametrize(
    ("facts", "is_ended"),
    [
        ({"host": "another-container", "boot": process_locks._boot_id()}, bool(process_locks._boot_id())),  # made anew
        ({"boot": "before the reboot"}, True),
        ({"host": "another-machine", "boot": "another boot"}, False),
    ],
)
def test_only_processes_of_this_machine_are_judged(run: Run, facts: dict[str, str], is_ended: bool) -> None:
    path = leave_file(run, **facts)
    lost_runs.end_runs_of_dead_processes()
    run.refresh_from_db()
    assert (run.ended_at is not None) == is_ended
    path.unlink(missing_ok=True)


def test_a_run_without_a_known_process_is_waited_for(run: Run) -> None:
    lost_runs.end_runs_of_dead_processes()
    run.refresh_from_db()
    assert run.ended_at is None


def test_a_process_never_ends_its_own_runs(run: Run) -> None:
    Run.objects.update(process=process_locks.name_here())
    lost_runs.end_runs_of_dead_processes()
    run.refresh_from_db()
    assert run.ended_at is None
    process_locks.forget()


def test_the_time_of_a_lost_answer_ends_with_its_last_sign_of_life(run: Run, ada: User) -> None:
    Run.objects.update(heartbeat_at=run.started_at)
    lost_runs.sweep()
    [turn] = panel_of(Session.objects.get(pk=run.session_id), reader=ada)["turns"]
    assert turn.seconds == pytest.approx(2.0, abs=0.1)


def test_a_clock_that_was_set_back_during_the_run_changes_nothing(run: Run) -> None:
    run.started_at = run.heartbeat_at = timezone.now() + timedelta(hours=1)
    Exchange.objects.update(heartbeat_at=timezone.now() + timedelta(hours=1))
    leave_file(run)
    lost_runs.end_runs_of_dead_processes()
    run.refresh_from_db()
    answer = Message.objects.get(kind="model_output")
    assert (answer.content, answer.status) == ("Half an answer", "interrupted")
    assert (run.outcome, run.leaf) == ("lost", answer.seq)
