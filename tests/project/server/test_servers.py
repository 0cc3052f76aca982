"""Background work under real servers: it starts, one process leads, and SIGTERM ends everything in good order."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from granian.asgi import LifespanProtocol
from pytest_django.fixtures import Settings
from uvicorn import Config
from uvicorn.lifespan.on import LifespanOn
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from project.server.readiness import start_problem
from relay.runtime.asgi import Receive
from tests.servers.processes import SERVERS, Process, clean_environment, free_port, run_process, run_server, wait_for

pytestmark = pytest.mark.runs_first

# What each server ends with after SIGTERM: uvicorn raises the signal again once it is done.
ENDS_WITH = {"daphne": {0}, "uvicorn": {0, -signal.SIGTERM}, "granian": {0}}
PROBE = "tests.project.server.probe:application"


class Tracks:
    """What the jobs of the probe left behind: who did what, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[tuple[int, str]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(pid), word) for pid, word in (line.split() for line in lines)]

    def count(self, word: str) -> Counter[int]:
        return Counter(pid for pid, found in self.all() if found == word)


@pytest.fixture
def tracks(tmp_path: Path) -> Tracks:
    return Tracks(tmp_path / "tracks")


@pytest.fixture
def probe_environment(environment: dict[str, str], tracks: Tracks) -> dict[str, str]:
    return clean_environment(**environment, PROBE_TRACKS=str(tracks.path), PROBE_LEASE=secrets.token_hex(8))


@pytest.fixture(params=ENDS_WITH)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_socket(port: int, path: str, *, origin: str = "") -> ClientConnection:
    return connect(f"ws://127.0.0.1:{port}{path}", origin=Origin(origin or f"http://127.0.0.1:{port}"))


def refuses(port: int, path: str, *, origin: str = "") -> None:
    with pytest.raises(InvalidStatus) as refusal, open_socket(port, path, origin=origin):
        pass
    assert refusal.value.response.status_code == 403


def end_well(process: Process, server: str) -> None:
    started = time.monotonic()
    code = process.end()
    assert time.monotonic() - started < 10
    assert code in ENDS_WITH[server], process.output
    assert "Background work has ended." in process.output


@pytest.mark.any_database
def test_every_server_runs_jobs_refuses_bad_sockets_and_ends_on_sigterm(
    server: str, probe_environment: dict[str, str], tracks: Tracks, tmp_path: Path
) -> None:
    port = free_port()
    with run_server(
        server, application=PROBE, port=port, log=tmp_path / "log", environment=probe_environment
    ) as process:
        wait_for(lambda: sum(tracks.count("tick").values()) > 2, what="the job running")
        wait_for(lambda: tracks.count("lead"), what="the lease being taken")
        refuses(port, "/ws/nowhere")
        refuses(port, "/ws/open", origin="https://evil.example")
        refuses(port, "/ws/open", origin=f"http://127.0.0.1:{port + 1}")
        with pytest.raises(HTTPError):
            urlopen(f"http://127.0.0.1:{port}/accounts/link/very-secret-token/", timeout=5)
        with open_socket(port, "/ws/open") as socket:
            assert socket.recv(timeout=5) == "open"
            end_well(process, server)
        assert "very-secret-token" not in process.output
        assert "Traceback" not in process.output
    # Once when it started, once more at the end; nothing after that.
    assert sum(tracks.count("goodbye").values()) == 2
    assert tracks.all()[-1][1] == "goodbye"


def test_of_two_processes_exactly_one_leads_and_the_other_follows_when_it_ends_or_is_killed(
    probe_environment: dict[str, str], tracks: Tracks, tmp_path: Path
) -> None:
    """The one that is killed is followed when its lease runs out."""

    def serve(server: str, name: str) -> AbstractContextManager[Process]:
        log = tmp_path / name
        return run_server(server, application=PROBE, port=free_port(), log=log, environment=probe_environment)

    with serve("daphne", "first") as first:
        wait_for(lambda: tracks.count("lead"), what="the first leading")
        with serve("uvicorn", "second") as second:
            wait_for(lambda: len(tracks.count("tick")) == 2, what="both processes working")
            time.sleep(1)
            assert len(tracks.count("lead")) == 1
            end_well(first, "daphne")
            wait_for(lambda: len(tracks.count("lead")) == 2, what="the second leading")
            with serve("uvicorn", "third"):
                second.kill()
                wait_for(lambda: len(tracks.count("lead")) == 3, what="the third leading")


@pytest.mark.any_database
def test_a_job_that_always_fails_is_logged_once_and_goes_on(
    probe_environment: dict[str, str], tracks: Tracks, tmp_path: Path
) -> None:
    fails = {**probe_environment, "PROBE_FAILS": "yes"}
    with run_server("uvicorn", application=PROBE, port=free_port(), log=tmp_path / "log", environment=fails) as process:
        wait_for(lambda: sum(tracks.count("fail").values()) > 5, what="the job failing several times")
        assert process.output.count("RuntimeError: this job always fails") == 1


@pytest.mark.any_database
def test_background_off_leaves_alone_what_runs_once_and_still_looks_after_its_own_process(
    probe_environment: dict[str, str], tracks: Tracks, tmp_path: Path
) -> None:
    off = {**probe_environment, "PARLEY_BACKGROUND": "off"}
    with run_server("uvicorn", application=PROBE, port=free_port(), log=tmp_path / "log", environment=off) as process:
        wait_for(lambda: sum(tracks.count("tick").values()) > 5, what="the job of every process")
        process.end()
    assert sum(tracks.count("lead").values()) == 0


@pytest.mark.parametrize("server", ["uvicorn", "granian"])
def test_several_workers_without_redis_are_refused_with_one_line(
    server: str, environment: dict[str, str], tmp_path: Path
) -> None:
    words = [word.format(port=free_port(), application="project.asgi:application") for word in SERVERS[server]]
    command = [sys.executable, "-m", *words, "--workers", "2"]
    without_redis = clean_environment(**environment, REDIS_URL="")
    with run_process(command, log=tmp_path / "log", environment=without_redis) as run:
        run.popen.wait(60)
        assert "Several web processes need Redis. Set REDIS_URL, or start the server with one worker." in run.output
        assert "Traceback" not in run.output


@pytest.mark.any_database
def test_granian_with_uvloop_is_refused_with_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    words = [word.format(port=free_port(), application="project.asgi:application") for word in SERVERS["granian"]]
    command = [sys.executable, "-m", *words, "--loop", "uvloop"]
    with run_process(command, log=tmp_path / "log", environment=clean_environment(**environment)) as run:
        run.popen.wait(60)
        assert "Start Granian with --loop asyncio." in run.output
        assert "Traceback" not in run.output


async def receive_of_granian() -> Receive:
    return cast(Receive, LifespanProtocol(None).receive)  # type: ignore[no-untyped-call]


async def receive_of_uvicorn() -> Receive:
    return cast(Receive, LifespanOn(Config(lambda *_: None, log_config=None)).receive)


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("create_receive", "options", "variables", "is_refused"),
    [
        (receive_of_uvicorn, [], {"WEB_CONCURRENCY": "2"}, True),
        (receive_of_uvicorn, [], {}, False),
        (receive_of_granian, ["--workers=2"], {}, True),
        (receive_of_granian, [], {"GRANIAN_WORKERS": "2"}, True),
        (receive_of_granian, ["--workers", "1"], {"GRANIAN_WORKERS": "2"}, False),
        (receive_of_granian, [], {}, False),
    ],
)
async def test_each_form_of_the_number_of_workers_is_read(
    create_receive: Callable[[], Awaitable[Receive]],
    options: list[str],
    variables: dict[str, str],
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    settings.REDIS_URL = ""
    for name in ("WEB_CONCURRENCY", "GRANIAN_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["server", "project.asgi:application", *options])
    assert bool(start_problem(await create_receive())) == is_refused
