"""The jobs themselves, and the crew without a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection
from django.utils.module_loading import import_string

from project.background.jobs import JOBS, Border, Job


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.name))
@pytest.mark.django_db(transaction=True)
def test_every_job_can_be_run_on_an_empty_house(job: Job) -> None:
    import_string(job.run)()


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.exc_info[1]}" if record.exc_info else record.levelname)


@pytest.fixture
def told() -> Iterator[Told]:
    handler, logger = Told(), logging.getLogger("project.background.jobs")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_an_error_is_told_when_it_comes_when_it_changes_and_when_it_is_over(told: Told) -> None:
    def fail(why: str) -> None:
        raise RuntimeError(why)

    border = Border()
    for why in ("away", "away", "full", "full"):
        border.run(partial(fail, why), name="job")
    border.run(lambda: None, name="job")
    border.run(lambda: None, name="job")
    assert told.lines == ["ERROR away", "ERROR full", "INFO"]


@pytest.mark.django_db(transaction=True)
def test_no_run_leaves_a_connection_open() -> None:
    Border().run(lambda: connection.ensure_connection(), name="job")
    assert connection.connection is None
