"""Every job of the table, and the log of failing jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection
from django.utils.module_loading import import_string

from project.background.jobs import JOBS, Job
from project.background.scheduler import FailureLog


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
