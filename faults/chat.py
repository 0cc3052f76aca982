"""The database is away while chat answers end: PostgreSQL stopped, or a SQLite file locked by another program."""

from __future__ import annotations

import time
from pathlib import Path

from faults.relay.outage import database_away
from tests.servers.installation import IMPATIENT_APP, create_installation, numbered_words, slow_words
from tests.sockets import ProgramSocket

WORDS = 20


def run(folder: Path, server: str, rounds: int) -> str:
    """30 seconds at 40 rounds: longer than a run without a sign of life counts as alive."""
    seconds, chats = max(6.0, 0.75 * rounds), max(2, rounds // 10)
    place = folder / "chat"
    place.mkdir(exist_ok=True)
    with create_installation(place) as here, here.serving(application=IMPATIENT_APP) as web:
        here.plays(
            *[slow_words(WORDS, seconds=0.1) for _ in range(chats)], *[slow_words(2, seconds=0) for _ in range(chats)]
        )
        programs = [here.program(web) for _ in range(chats)]
        begun = [program.request("send", text=f"Question {place}") for place, program in enumerate(programs)]
        for program, sent in zip(programs, begun, strict=True):
            program.until_text(sent["run"], lambda text: "w1" in text)
        with database_away(here.variables["DATABASE_URL"], server):
            time.sleep(seconds)
        back = time.monotonic()
        programs = [here.program(web) for _ in range(chats)]
        sessions = [sent["session_id"] for sent in begun]
        for program, session in zip(programs, sessions, strict=True):
            _until_answered(program, session)
        took = time.monotonic() - back
        for program, session in zip(programs, sessions, strict=True):
            program.request("open", session=session)
            sent = program.request("send", text="And now?")
            assert "run" in sent, f"the conversation is stuck: {sent}"
            program.ended(sent["run"])
    return f"{seconds:.0f} s without a database: {chats} answers stored whole {took:.1f} s after it came back"


def _until_answered(program: ProgramSocket, session: str, *, within: float = 60) -> None:
    end = time.monotonic() + within
    while True:
        told = program.request("history", session=session)["messages"]
        answers = [one for one in told if one["role"] == "assistant"]
        if answers and answers[-1]["content"].split() == numbered_words(WORDS):
            assert len(answers) == 1, f"{len(answers)} answers to one question"
            assert answers[0]["metadata"]["status"] == "complete", answers[0]["metadata"]
            return
        assert time.monotonic() < end, f"the answer was not stored: {answers}"
        time.sleep(0.5)
