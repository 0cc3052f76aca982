"""The jobs that the record needs are on the list, as often as it promises."""

from __future__ import annotations

import pytest

from project.background.jobs import JOBS


@pytest.mark.parametrize(
    ("run", "every", "once_per"),
    [
        ("history.record.exchanges.flush_partials", 0.25, "process"),
        ("history.record.exchanges.sweep", 5, "installation"),
        ("history.retention.purge_due", 3600, "installation"),
    ],
)
def test_the_record_is_looked_after_in_the_background(run: str, every: float, once_per: str) -> None:
    [job] = [job for job in JOBS if job.run == run]
    assert (job.every, job.once_per) == (every, once_per)
