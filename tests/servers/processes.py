"""Real processes for tests: a server under its own name, its database, its port, its log."""

from __future__ import annotations

import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.error import URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
SERVERS = {
    "daphne": ["daphne", "--bind", "127.0.0.1", "--port", "{port}", "--access-log", os.devnull, "{application}"],
    "uvicorn": ["uvicorn", "--port", "{port}", "{application}"],
    "granian": [
        "granian",
        "--interface",
        "asgi",
        "--loop",
        "asyncio",
        "--access-log",
        "--port",
        "{port}",
        "{application}",
    ],
}
# With one of them a test shows that something works on each database, with the others that it works on each server.
ON_ANY_DATABASE = [pytest.param(name, marks=pytest.mark.any_database) for name in ("uvicorn", "granian")]

# Empty, not left out: a developer's .env may have them.
VENDOR_VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
)
# The settings of `make run` for glibc.
MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "524288"}
# Keeps processes from calling other machines.
HERMETIC = {
    "PARLEY_LOOPBACK_ONLY": "on",
    "PARLEY_FIND_LOCAL_MODELS": "off",
    "PARLEY_PROVIDERS": "",
    **dict.fromkeys(VENDOR_VARIABLES, ""),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(**variables: str) -> dict[str, str]:
    """What the process would see on a machine without settings of Parley."""
    ours = ("PARLEY_", "CHAT_HISTORY_", "PROBE_")
    names = (
        "DATABASE_URL",
        "REDIS_URL",
        "SECRET_KEY",
        "ALLOWED_HOSTS",
        "DEBUG",
        "PORT",
        "HOST",
        "DJANGO_SETTINGS_MODULE",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in names}
    fixed = {"PYTHONUNBUFFERED": "1", "DJANGO_SETTINGS_MODULE": "project.settings", **MEMORY, **HERMETIC}
    return {**kept, **fixed, **variables}


def database_url() -> str:
    """Where the database of this test is, for a process beside it."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


def run_manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def load_settings(**variables: str) -> dict[str, Any]:
    """Those that a process with these variables would have; read here, because a process takes a second."""
    with patch.dict(os.environ, clean_environment(**variables), clear=True):
        return runpy.run_path(str(ROOT / "project" / "settings.py"))


def wait_for(condition: Callable[[], object], *, seconds: float = 60, what: str = "what the test waits for") -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds:g} seconds")
        time.sleep(0.02)


class Process:
    """One process and what it wrote to stdout and stderr."""

    def __init__(self, command: list[str], *, log: Path, environment: Mapping[str, str], folder: Path = ROOT) -> None:
        self.log = log
        with log.open("wb") as file:
            # A group of its own, so that `kill` also reaches the workers that a server starts.
            self.popen = subprocess.Popen(
                command, cwd=folder, env=dict(environment), stdout=file, stderr=file, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self, number: int = signal.SIGTERM, *, seconds: float = 30) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(seconds)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@contextmanager
def run_process(
    command: list[str], *, log: Path, environment: Mapping[str, str], folder: Path = ROOT
) -> Iterator[Process]:
    process = Process(command, log=log, environment=environment, folder=folder)
    try:
        yield process
    finally:
        process.kill()


def is_answering(port: int, path: str = "/healthz") -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


@contextmanager
def run_server(
    server: str, *, application: str, port: int, log: Path, environment: Mapping[str, str]
) -> Iterator[Process]:
    words = [word.format(port=port, application=application) for word in SERVERS[server]]
    with run_process([sys.executable, "-m", *words], log=log, environment=environment) as process:
        wait_for(lambda: is_answering(port) or process.popen.poll() is not None, what=f"{server} serving ({log})")
        assert process.popen.poll() is None, process.output
        yield process
