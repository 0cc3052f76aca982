"""`manage.py serve`, as a newcomer meets it: a link, a page, and one clear line when something is in the way."""

from __future__ import annotations

import re
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from django.core.management import CommandError, call_command

from tests.servers.browser import Browser
from tests.servers.processes import (
    Process,
    clean_environment,
    free_port,
    is_answering,
    run_manage,
    run_process,
    wait_for,
)

pytestmark = pytest.mark.runs_first

SERVE = [sys.executable, "manage.py", "serve"]


def link_of(server: Process) -> str:
    wait_for(lambda: "/accounts/link/" in server.output, seconds=60, what="the link being printed")
    found = re.search(r"http://\S+/accounts/link/\S+/", server.output)
    assert found
    return found[0]


def test_every_start_prints_a_fresh_link_that_opens_once(empty_database_url: str, tmp_path: Path) -> None:
    port = free_port()
    environment = clean_environment(
        DATABASE_URL=empty_database_url, PARLEY_DATA_DIR=str(tmp_path / "data"), PORT=str(port)
    )
    links = []
    for start in range(2):
        with run_process(SERVE, log=tmp_path / f"log{start}", environment=environment) as server:
            links.append(link_of(server))
            wait_for(lambda: is_answering(port, "/readyz"), what="serving")
            page = Browser().press(links[-1])
            assert "Hello, admin" in page
            check_static_files(port, page)
            with pytest.raises(HTTPError) as refused:
                urlopen(links[-1], timeout=20)
            assert refused.value.code == 410
            assert server.end() == 0
            assert "Traceback" not in server.output
    assert links[0] != links[1]


def check_static_files(port: int, page: str) -> None:
    """They have names for their content, and may be kept for ever."""
    found = re.search(r"/static/bundles/chat\.[0-9a-f]{12}\.css", page)
    assert found, "static files have no hashed names"
    with urlopen(f"http://127.0.0.1:{port}{found[0]}", timeout=20) as response:
        assert "immutable" in response.headers["Cache-Control"]
        assert b"\nbody {" in response.read()


@pytest.mark.any_database
def test_a_port_that_is_taken_is_one_clear_line(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_manage("serve", **environment, PORT=str(port))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert f"PORT={port + 1} make run" in done.stderr


@pytest.mark.parametrize("command", [["serve"], ["signin", "ada"], ["work"]])
def test_a_database_that_cannot_be_reached_is_one_clear_line(command: list[str], tmp_path: Path) -> None:
    done = run_manage(
        *command,
        DATABASE_URL="postgres://nobody:hunter2@127.0.0.1:1/x",
        PARLEY_DATA_DIR=str(tmp_path),
        PORT=str(free_port()),
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "127.0.0.1:1/x" in done.stderr
    assert "DATABASE_URL" in done.stderr
    assert "hunter2" not in done.stderr


def test_commands_ask_for_a_migration_instead_of_failing(tmp_path: Path) -> None:
    done = run_manage(
        "signin", "ada", PARLEY_DATA_DIR=str(tmp_path), DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3"
    )
    assert done.returncode == 1
    assert "manage.py migrate" in done.stderr


@pytest.mark.any_database
def test_work_runs_until_sigterm_and_ends_well(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "work"]
    with run_process(command, log=tmp_path / "log", environment=clean_environment(**environment)) as process:
        wait_for(lambda: "Working:" in process.output, seconds=60, what="work beginning")
        started = time.monotonic()
        assert process.end() == 0
        assert time.monotonic() - started < 8
        assert "Traceback" not in process.output


@pytest.mark.parametrize(("workers", "problem"), [(2, "Several web processes need Redis."), (0, "--workers must be")])
def test_workers_that_cannot_serve_are_refused(workers: int, problem: str, settings: Any) -> None:
    settings.REDIS_URL = ""
    with pytest.raises(CommandError, match=problem):
        call_command("serve", workers=workers)
