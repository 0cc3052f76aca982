"""The server of the chat benchmark: one process, started and ended here, whose CPU time is what we are after."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil

APPLICATION = "bench.chat_server:application"
SERVERS = {
    "Daphne": ["daphne", "--bind", "127.0.0.1", "--access-log", os.devnull, "--port", "{port}"],
    "Uvicorn": ["uvicorn", "--log-level", "warning", "--port", "{port}"],
}
SETTINGS = {"PARLEY_DEMO_MODEL": "off", "PARLEY_FIND_LOCAL_MODELS": "off"}


@contextmanager
def serving(server: str, folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    port = _free_port()
    words = [word.format(port=port) for word in SERVERS[server]]
    with (folder / f"{server}.log").open("wb") as log:
        command = [sys.executable, "-m", *words, APPLICATION]
        started = subprocess.Popen(command, env=os.environ | SETTINGS, stdout=log, stderr=log)
    try:
        _wait_for(port, started)
        yield port, psutil.Process(started.pid)
    finally:
        started.terminate()
        started.wait(30)


def cpu_of(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def _fetch(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
        return str(response.read().decode())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, started: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and started.poll() is None:
        try:
            _fetch(port, "/healthz")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the server did not start")
