"""Crashes and crowds for minutes instead of seconds, on SQLite and on PostgreSQL; ends with 1 when something was lost.

python -m faults [--rounds 40] [--sqlite | --postgres]
    [kill crowd stream histories outage disk worker chunks damage large
     chat moments commands queue redis network sockets]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from django.conf import settings

from faults import chat, commands, crowd, database_outages, kill, network, queue, sockets, stream
from faults.relay import chunks, damage, disk, large, outage, worker
from tests.servers.databases import shared_folder
from tests.servers.on_postgres import postgres
from tests.servers.writers import Writers, start_writers

FAULTS: dict[str, Callable[[Writers, int], str]] = {"kill": kill.run, "crowd": crowd.run, "stream": stream.run}
# Of the relay and the chat, each in its own installation. The second is the folder of a PostgreSQL; nothing: SQLite.
RELAY: dict[str, Callable[[Path, str, int], str]] = {
    "outage": outage.run,
    "disk": disk.run,
    "worker": worker.run,
    "chunks": chunks.run,
    "damage": damage.run,
    "large": large.run,
    "chat": chat.run,
    "moments": database_outages.run,
    "commands": commands.run,
    "queue": queue.run,
    "redis": sockets.run_redis,
    "network": network.run,
    "sockets": sockets.run_database,
}
HISTORIES = "histories"


def main() -> int:
    settings.configure(DATABASE_URL="")  # nothing here is Django but the names of databases
    asked = arguments()
    engines = ["sqlite", "postgres"] if asked.engine is None else [asked.engine]
    return max(run_on(engine, asked.faults or [*FAULTS, HISTORIES, *RELAY], asked.rounds) for engine in engines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument(
        "faults", nargs="*", choices=[[], *FAULTS, HISTORIES, *RELAY], help="which; all, if none is named"
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sqlite", dest="engine", action="store_const", const="sqlite")
    parser.add_argument("--postgres", dest="engine", action="store_const", const="postgres")
    return parser.parse_args()


def run_on(engine: str, names: list[str], rounds: int) -> int:
    failed = 0
    # Out of the home folder: PostgreSQL runs as a user of its own when we are root.
    with (
        shared_folder(),
        tempfile.TemporaryDirectory(prefix="parley-faults-", ignore_cleanup_errors=True) as folder,
        server(engine, Path(folder)),
        start_writers(Path(folder)) as place,
    ):
        for name in names:
            failed |= report(engine, name, partial(_fault(name), engine, place, Path(folder), rounds))
    return failed


def _fault(name: str) -> Callable[[str, Writers, Path, int], str]:
    if name == HISTORIES:
        return lambda engine, place, folder, rounds: histories(rounds)
    if name in RELAY:
        return lambda engine, place, folder, rounds: RELAY[name](
            folder, str(folder / "pg") if engine == "postgres" else "", rounds
        )
    return lambda engine, place, folder, rounds: FAULTS[name](place, rounds)


@contextmanager
def server(engine: str, folder: Path) -> Iterator[None]:
    """Where `elsewhere_in` puts its database: DATABASE_URL names the server, or nothing for a file."""
    before = os.environ.pop("DATABASE_URL", None)
    try:
        if engine == "sqlite":
            settings.DATABASE_URL = ""
            yield
        else:
            with postgres(folder / "pg") as url:
                os.environ["DATABASE_URL"] = settings.DATABASE_URL = url
                yield
    finally:
        os.environ.pop("DATABASE_URL", None)
        if before is not None:
            os.environ["DATABASE_URL"] = before


def report(engine: str, name: str, run: Callable[[], str]) -> int:
    started = time.monotonic()
    try:
        said, failed = run(), 0
    except AssertionError as error:
        said, failed = f"FAILED: {error}", 1
    sys.stdout.write(f"{engine:9} {name:10} {time.monotonic() - started:7.1f} s  {said}\n")
    sys.stdout.flush()
    return failed


def histories(rounds: int) -> str:
    """The model-based test with new random steps each time, and found failures made small."""
    test = [sys.executable, "-m", "pytest", "tests/history/record/test_model_based.py"]
    environment = os.environ | {"PARLEY_STEPS": str(max(2, rounds // 4))}
    ended = subprocess.run(test, env=environment, check=False)  # noqa: S603 - our own test
    assert ended.returncode == 0, "the record and the model disagree; the steps are shown above"
    return f"random histories agree with the model (PARLEY_STEPS={environment['PARLEY_STEPS']})"


if __name__ == "__main__":
    sys.exit(main())
