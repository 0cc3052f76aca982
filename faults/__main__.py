"""Crashes and crowds for minutes instead of seconds, on SQLite and on PostgreSQL; ends with 1 when something was lost.

python -m faults [--rounds 40] [--sqlite | --postgres] [kill] [crowd] [stream] [histories]
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
from pathlib import Path

from faults import crowd, kill, stream
from tests.history.elsewhere import Elsewhere, elsewhere_in
from tests.on_postgres import postgres

FAULTS: dict[str, Callable[[Elsewhere, int], str]] = {"kill": kill.run, "crowd": crowd.run, "stream": stream.run}
HISTORIES = "histories"


def main() -> int:
    asked = arguments()
    engines = ["sqlite", "postgres"] if asked.engine is None else [asked.engine]
    return max(run_on(engine, asked.faults or [*FAULTS, HISTORIES], asked.rounds) for engine in engines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS, HISTORIES], help="which; all, if none is named")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sqlite", dest="engine", action="store_const", const="sqlite")
    parser.add_argument("--postgres", dest="engine", action="store_const", const="postgres")
    return parser.parse_args()


def run_on(engine: str, names: list[str], rounds: int) -> int:
    failed = 0
    # Out of the home folder: PostgreSQL runs as a user of its own when we are root.
    with (
        tempfile.TemporaryDirectory(prefix="parley-faults-", ignore_cleanup_errors=True) as folder,
        server(engine, Path(folder)),
        elsewhere_in(Path(folder)) as place,
    ):
        for name in names:
            failed |= report(engine, name, place, rounds)
    return failed


@contextmanager
def server(engine: str, folder: Path) -> Iterator[None]:
    """Where `elsewhere_in` puts its database: DATABASE_URL names the server, or nothing for a file."""
    before = os.environ.pop("DATABASE_URL", None)
    try:
        if engine == "sqlite":
            yield
        else:
            with postgres(folder / "pg") as url:
                os.environ["DATABASE_URL"] = url
                yield
    finally:
        os.environ.pop("DATABASE_URL", None)
        if before is not None:
            os.environ["DATABASE_URL"] = before


def report(engine: str, name: str, place: Elsewhere, rounds: int) -> int:
    started = time.monotonic()
    try:
        said = histories(rounds) if name == HISTORIES else FAULTS[name](place, rounds)
        failed = 0
    except AssertionError as error:
        said, failed = f"FAILED: {error}", 1
    sys.stdout.write(f"{engine:9} {name:10} {time.monotonic() - started:7.1f} s  {said}\n")
    sys.stdout.flush()
    return failed


def histories(rounds: int) -> str:
    """The model-based test with new random steps each time, and found failures made small."""
    test = [sys.executable, "-m", "pytest", "tests/history/test_model_based.py"]
    environment = os.environ | {"PARLEY_STEPS": str(max(2, rounds // 4))}
    ended = subprocess.run(test, env=environment, check=False)  # noqa: S603 - our own test
    assert ended.returncode == 0, "the record and the model disagree; the steps are shown above"
    return f"{environment['PARLEY_STEPS']} × as many random histories as in the tests agree with the model"


if __name__ == "__main__":
    sys.exit(main())
