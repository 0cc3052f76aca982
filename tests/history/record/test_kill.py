"""kill -9 in the middle of writes: everything that was acknowledged is there, and what is there is whole."""

from __future__ import annotations

import random
import time

import pytest

from tests.servers.writers import Writers, read_lines


def killed_while_writing(writers: Writers, session: str, *, after: float) -> int:
    """Let a process write entries of all sorts for a while, then kill it; the last version that it acknowledged."""
    with writers.started("write_everything", "victim", session) as writer:
        assert writer.stdout is not None
        first = writers.next_line(writer)
        time.sleep(after)
        writer.kill()
        lines = [first, *read_lines(writer.stdout.read())]
        writer.wait()
    return max(int(line["version"]) for line in lines)


# `make faults` kills many more.
@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_survives_the_death_of_the_writer(writers: Writers, seed: int) -> None:
    chance = random.Random(seed)
    [session] = writers.run("begin", 1)
    acknowledged = killed_while_writing(writers, session, after=chance.uniform(0.05, 0.6))
    survey = writers.run("survey", session)
    assert survey["version"] >= acknowledged
    assert [row["seq"] for row in survey["rows"]] == list(range(1, survey["version"] + 1))
    assert survey["findings"] == []


def test_a_session_can_be_continued_after_its_writer_was_killed_and_the_store_is_sound(writers: Writers) -> None:
    [session] = writers.run("begin", 1)
    acknowledged = 0
    for _ in range(2):
        last = killed_while_writing(writers, session, after=0.3)
        assert last > acknowledged
        acknowledged = last
    assert writers.run("survey", session)["version"] >= acknowledged
    assert writers.run("check") == []
