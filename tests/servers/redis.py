"""A throw-away Redis that can be killed, started again at the same port, and made to hang."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.on_postgres import redis_server_path, wait_until_open
from tests.servers.processes import free_port


class RedisServer:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command = [redis_server_path(), *options, "--dir", str(self.folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until_open(self.port)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    @contextmanager
    def killed(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
