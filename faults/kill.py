"""Writers of all sorts, killed at random moments, again and again, in the same sessions."""

from __future__ import annotations

import random
import time

from tests.servers.writers import Process, Writers, read_lines

WRITERS = 3


def run(elsewhere: Writers, rounds: int) -> str:
    sessions = elsewhere.run("begin", WRITERS)
    acknowledged = dict.fromkeys(sessions, 0)
    for _ in range(rounds):
        writers = {session: elsewhere.start("write_everything", "victim", session) for session in sessions}
        told = {session: elsewhere.next_line(writer)["version"] for session, writer in writers.items()}
        time.sleep(random.uniform(0, 1))  # noqa: S311
        for session, writer in writers.items():
            acknowledged[session] = max(acknowledged[session], told[session], last_version(writer))
        for session in sessions:
            survey = elsewhere.run("survey", session)
            assert survey["version"] >= acknowledged[session], f"{session} lost what was acknowledged"
            assert [row["seq"] for row in survey["rows"]] == list(range(1, survey["version"] + 1)), "numbers with gaps"
            assert not survey["findings"], survey["findings"]
    wrong = elsewhere.run("check")
    assert not wrong, wrong
    return f"{rounds * WRITERS} kills, {sum(acknowledged.values()):,} entries acknowledged, none lost, all verified"


def last_version(writer: Process) -> int:
    """Kill it, and read what it still had told."""
    assert writer.stdout is not None
    writer.kill()
    lines = read_lines(writer.stdout.read())
    writer.communicate()
    return max((int(line["version"]) for line in lines), default=0)
