"""Writers killed in the middle of an answer; several sweeps come by at once."""

from __future__ import annotations

import random

from tests.servers.writers import Writers

SWEEPERS = 3


def run(elsewhere: Writers, rounds: int) -> str:
    for _ in range(max(1, rounds // 4)):
        [session] = elsewhere.run("begin", 1)
        with elsewhere.started("stream", session) as writer:
            elsewhere.next_line(writer)
            words = random.randint(1, 20)  # noqa: S311
            flushed = [elsewhere.next_line(writer)["flushed"] for _ in range(words)][-1]
            writer.kill()
        for sweeper in [elsewhere.start("sweep") for _ in range(SWEEPERS)]:
            elsewhere.lines_to_the_end(sweeper)
        survey = elsewhere.run("survey", session)
        answers = [row for row in survey["rows"] if row["kind"] == "model_output"]
        assert len(answers) == 1, f"{len(answers)} messages of one answer"
        assert answers[0]["status"] == "interrupted", answers[0]["status"]
        assert answers[0]["content"].startswith(flushed[:80].strip()), "text that was flushed is missing"
        assert not survey["findings"], survey["findings"]
    return f"{max(1, rounds // 4)} answers cut off, each one interrupted message with its text"
