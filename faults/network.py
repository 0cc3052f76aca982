"""Redis behind a failing network, and a Redis that refuses: every word once at every socket of three processes."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from tests.servers.installation import (
    APP,
    IMPATIENT_APP,
    Installation,
    Server,
    create_installation,
    numbered_words,
    slow_words,
)
from tests.servers.proxy import Proxy, proxy
from tests.servers.redis import RedisServer, redis_server
from tests.sockets import ProgramSocket

WORDS = 120
LONG_SECONDS = (2.0, 12.0)


def run(folder: Path, server: str, rounds: int) -> str:
    answers, played = max(2, rounds // 2), Counter[str]()
    with (
        create_installation(Path(tempfile.mkdtemp(dir=folder))) as installation,
        redis_server(Path(tempfile.mkdtemp(dir=folder))) as redis,
        proxy(redis.port) as network,
    ):
        faults = _faults(redis, network)
        with _processes(installation, network, IMPATIENT_APP) as servers:
            for number in range(answers):
                name = list(faults)[number % len(faults)]
                _answer_during(installation, servers, name, faults[name], random.uniform(0.2, 3.0))  # noqa: S311
                played[name] += 1
        with _processes(installation, network, APP) as servers:
            for seconds in LONG_SECONDS:
                _answer_during(installation, servers, "black hole", network.silent, seconds)
                played[f"black hole of {seconds:.0f} s"] += 1
    told = ", ".join(f"{count} × {name}" for name, count in sorted(played.items()))
    return f"{told}: each word once at every socket of three processes"


def _faults(redis: RedisServer, network: Proxy) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    return {
        "slow": lambda: network.slow(0.2),
        "black hole": network.silent,
        "black hole and reset": network.silent_and_reset,
        "restarted empty": redis.killed,
        "out of memory": lambda: _setting(redis, "maxmemory", "1", "0"),
        "read-only": lambda: _replica(redis),
    }


@contextmanager
def _setting(redis: RedisServer, name: str, value: str, before: str) -> Iterator[None]:
    with Redis.from_url(redis.url) as client:
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


@contextmanager
def _replica(redis: RedisServer) -> Iterator[None]:
    """A replica whose primary cannot be reached: it refuses every write."""
    with Redis.from_url(redis.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            yield
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")


def _answer_during(
    installation: Installation,
    servers: list[Server],
    name: str,
    fault: Callable[[], AbstractContextManager[None]],
    seconds: float,
) -> None:
    """One answer at a process, watched at all of them; one of the watchers leaves and comes back twice."""
    installation.plays(slow_words(WORDS, seconds=0.05))
    there, *others = random.sample(servers, len(servers))
    asking = installation.program(there)
    sent = asking.request("send", text="Count.")
    run, session = sent["run"], sent["session_id"]
    watching = [installation.program(server) for server in others]
    for program in watching:
        program.request("open", session=session)
    asking.until_text(run, lambda text: "w5 " in text)
    with fault():
        back = _reopen(installation, others[0], session)
        time.sleep(seconds)
    again = _reopen(installation, others[1], session)
    for program in [asking, *watching, *(one for one in (back, again) if one is not None)]:
        assert program.ended(run)["outcome"] == "done", f"{name}: {program.frames[-1]}"
        assert program.words(run) == numbered_words(WORDS), f"{name} for {seconds:.1f} s: {program.words(run)}"
    answer = installation.program(others[0]).request("history", session=session, count=1)["messages"][-1]
    assert str(answer["content"]).split() == numbered_words(WORDS), f"{name}: the record lacks words"
    installation.close_sockets()


def _reopen(installation: Installation, server: Server, session: str) -> ProgramSocket | None:
    program = installation.program(server)
    return program if program.request("open", session=session)["running"] else None


@contextmanager
def _processes(installation: Installation, network: Proxy, application: str) -> Iterator[list[Server]]:
    url = f"redis://127.0.0.1:{network.port}/0"
    with ExitStack() as stack:
        yield [
            stack.enter_context(installation.serving("uvicorn", application=application, redis=url)) for _ in range(3)
        ]
