"""Files of the relay's journal are damaged on disk while the server is down: flipped, cut, swapped, doubled, zeroed."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from faults.relay.callers import Load
from faults.relay.installation import Installation, RecordedCalls, installation
from faults.relay.ledger import check_acknowledged, check_all_ended, check_nothing_doubled
from tests.relay.digest.damages import DAMAGES
from tests.servers.processes import wait_for


def run(folder: Path, server: str, rounds: int) -> str:
    load, times, damaged = Load(), max(2, rounds // 8), 0
    with installation(folder, server=server) as here:
        for _ in range(times):
            with load.on(here):
                time.sleep(random.uniform(1.0, 2.0))  # noqa: S311
                here.kill()
            damaged += damage(here.data / "journal")
            here.start()
        recorded = settle(here)
    missing = check_acknowledged(load.calls, recorded, ends=("done", "server_lost", "damaged"))
    assert not missing or recorded.lost or recorded.lost_bytes, f"{len(missing)} calls are missing and none is counted"
    check_nothing_doubled(recorded)
    check_all_ended(recorded)
    ends = ", ".join(f"{count:,} {reason}" for reason, count in Counter(row["reason"] for row in recorded.rows).items())
    return (
        f"{damaged} files damaged: {len(missing)} whole calls missing, {recorded.lost} calls and "
        f"{recorded.lost_bytes:,} bytes counted as lost; no complete answer has a hole: {ends}"
    )


def damage(journal: Path) -> int:
    """One kind of damage to each file, of those that the tests of damaged files have."""
    files = [path for path in journal.glob("*.journal") if path.stat().st_size > 1_000]
    for path in files:
        data = bytearray(path.read_bytes())
        random.choice(DAMAGES)(data, random.Random())  # noqa: S311
        path.write_bytes(data)
    return len(files)


def settle(here: Installation) -> RecordedCalls:
    """Once the journal is digested and every call in the record has ended."""
    found = here.recorded()

    def is_settled() -> bool:
        nonlocal found
        found = here.recorded()
        return found.is_settled and not list((here.data / "journal").glob("*.journal"))

    wait_for(is_settled, seconds=120, what="the journal to be digested")
    return found
