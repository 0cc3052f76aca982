"""Chat sockets while Redis or the database is away: each word exactly once, no client is dropped without a notice."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from faults.relay.outage import database_away
from tests.servers.installation import (
    APP,
    IMPATIENT_APP,
    Installation,
    Server,
    create_installation,
    numbered_words,
    slow_words,
)
from tests.servers.redis import RedisServer, redis_server
from tests.sockets import ProgramSocket

WORDS = 120
# Longer than the channel layer waits with its usual patience.
LONG_SECONDS = 12.0


def run_redis(folder: Path, server: str, rounds: int) -> str:
    """Redis is killed or hangs in the middle of answers; clients reconnect at random."""
    answers, outages = max(2, rounds // 2), Counter[str]()
    with _installation(folder) as installation, redis_server(Path(tempfile.mkdtemp(dir=folder))) as redis:
        with _processes(installation, redis, IMPATIENT_APP) as (here, there):
            for _ in range(answers):
                outages[_answer_during(installation, redis, here, there, random.uniform(0.3, 3.0))] += 1  # noqa: S311
        with _processes(installation, redis, APP) as (here, there):
            _answer_during(installation, redis, here, there, LONG_SECONDS, outage="hangs")
    told = ", ".join(f"{outage} {count} times" for outage, count in sorted(outages.items()))
    return f"Redis {told} and hung {LONG_SECONDS:.0f} s: {answers + 1} answers, each word once at every socket"


def run_database(folder: Path, server: str, rounds: int) -> str:
    """The database is away in the middle of answers; sockets say `unavailable` and go on."""
    answers, refused = max(2, rounds // 8), 0
    with _installation(folder) as installation, installation.serving("uvicorn") as here:
        for _ in range(answers):
            installation.plays(slow_words(WORDS, seconds=0.03))
            asking = installation.program(here)
            sent = asking.request("send", text="Count.")
            watching = installation.program(here)
            watching.request("open", session=sent["session_id"])
            asking.until_text(sent["run"], lambda text: "w10 " in text)
            with database_away(installation.variables["DATABASE_URL"], server):
                refused += _is_refused(watching) if server else 0
                asking.until_text(sent["run"], lambda text: "w60 " in text)
            for program in (asking, watching):
                assert program.ended(sent["run"])["outcome"] == "done", program.frames[-1]
                assert program.words(sent["run"]) == numbered_words(WORDS), f"{program.words(sent['run'])}"
            assert _stored_words(installation, here, sent["session_id"]) == numbered_words(WORDS), (
                "the record lacks words"
            )
            installation.close_sockets()
    said = f"{refused} commands were told `unavailable`" if server else "commands waited"
    return f"{answers} outages of the database: each word once at every socket; {said}"


def _answer_during(
    installation: Installation, redis: RedisServer, here: Server, there: Server, seconds: float, *, outage: str = ""
) -> str:
    """One answer at `there`, watched here and there; in its middle Redis is away."""
    installation.plays(slow_words(WORDS, seconds=0.05))
    asking = installation.program(there)
    sent = asking.request("send", text="Count.")
    run, session = sent["run"], sent["session_id"]
    watching, leaving = installation.program(here), installation.program(here)
    for program in (watching, leaving):
        program.request("open", session=session)
    asking.until_text(run, lambda text: "w5 " in text)
    outage = outage or random.choice(["was killed", "hangs"])  # noqa: S311
    with redis.hanging() if outage == "hangs" else redis.killed():
        leaving.close()
        time.sleep(seconds)
    back = installation.program(here)
    is_running = bool(back.request("open", session=session)["running"])
    for program in [asking, watching] + [back] * is_running:
        assert program.ended(run)["outcome"] == "done", program.frames[-1]
        assert program.words(run) == numbered_words(WORDS), f"{outage} for {seconds:.1f} s: {program.words(run)}"
    assert _stored_words(installation, here, session) == numbered_words(WORDS)
    installation.close_sockets()
    return outage


def _is_refused(program: ProgramSocket) -> bool:
    """Whether a command is refused for the moment, in the words that promise that."""
    program.socket.send('{"type": "list", "id": "meanwhile"}')
    told = program.until(lambda told: told.get("id") == "meanwhile")
    assert told["type"] == "list" or told["code"] == "unavailable", told
    return bool(told["type"] == "error")


def _stored_words(installation: Installation, server: Server, session: str) -> list[str]:
    answer = installation.program(server).request("history", session=session, count=1)["messages"][-1]
    return str(answer["content"]).split()


@contextmanager
def _installation(folder: Path) -> Iterator[Installation]:
    with create_installation(Path(tempfile.mkdtemp(dir=folder))) as installation:
        yield installation


@contextmanager
def _processes(installation: Installation, redis: RedisServer, application: str) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        here, there = (
            stack.enter_context(installation.serving("uvicorn", application=application, redis=redis.url))
            for _ in range(2)
        )
        yield here, there
