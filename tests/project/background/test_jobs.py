"""Every job of the table, and the log of failing jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection
from django.utils.module_loading import import_string

from project.background.jobs import JOBS, Job
from project.background.scheduler import FailureLog, Scheduler


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.name))
@pytest.mark.django_db(transaction=True)
def test_every_job_can_be_run_on_an_empty_database(job: Job) -> None:
    import_string(job.run)()


class LogLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.exc_info[1]}" if record.exc_info else record.levelname)


@pytest.fixture
def log() -> Iterator[LogLines]:
    handler, logger = LogLines(), logging.getLogger("project.background.scheduler")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_an_error_is_logged_when_it_comes_changes_and_ends(log: LogLines) -> None:
    def fail(why: str) -> None:
        raise RuntimeError(why)

    failures = FailureLog()
    for why in ("away", "away", "full", "full"):
        failures.watch(partial(fail, why), name="job")
    failures.watch(lambda: None, name="job")
    failures.watch(lambda: None, name="job")
    assert log.lines == ["ERROR away", "ERROR full", "INFO"]


@pytest.mark.django_db(transaction=True)
def test_no_run_leaves_a_connection_open() -> None:
    FailureLog().watch(lambda: connection.ensure_connection(), name="job")
    assert connection.connection is None


beaten = threading.Event()


def beat() -> None:
    beaten.set()


def test_jobs_go_on_when_the_system_had_no_thread_for_a_moment(monkeypatch: pytest.MonkeyPatch, log: LogLines) -> None:
    start, refusals = threading.Thread.start, iter(["can't start new thread"])

    def start_later(thread: threading.Thread) -> None:
        if thread.name.startswith("background ") and (refusal := next(refusals, "")):
            raise RuntimeError(refusal)
        start(thread)

    beaten.clear()
    monkeypatch.setattr(threading.Thread, "start", start_later)
    scheduler = Scheduler([Job("beat", f"{__name__}.beat", every=60)], lease_seconds=30)
    scheduler.start()
    assert beaten.wait(10)
    scheduler.stop()
    assert log.lines == ["ERROR can't start new thread", "INFO"]
