"""The worker is killed under load, its digester with it, again and again."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from faults.relay.callers import Load
from faults.relay.installation import installation
from faults.relay.ledger import check_acknowledged, check_all_ended, check_nothing_doubled


def run(folder: Path, server: str, rounds: int) -> str:
    load, kills = Load(), max(2, rounds // 4)
    with installation(folder, server=server) as here:
        with load.on(here):
            for _ in range(kills):
                time.sleep(random.uniform(1.0, 2.0))  # noqa: S311
                here.kill()
                here.start()
            time.sleep(1)
        begun = [one for one in load.calls if one.exchange]
        recorded = here.settled(at_least=len(begun))
    missing = check_acknowledged(load.calls, recorded)
    assert not missing, f"{len(missing)} acknowledged calls are missing, the first is {missing[0].question}"
    known = {row["id"] for row in recorded.rows}
    gone = [one for one in begun if one.exchange not in known]
    assert not gone, f"{len(gone)} calls were accepted and are not in the record"
    check_nothing_doubled(recorded)
    check_all_ended(recorded)
    ends = Counter(row["reason"] for row in recorded.rows)
    told = ", ".join(f"{count:,} {reason}" for reason, count in ends.most_common())
    return f"{kills} × kill -9: {len(begun):,} calls accepted, each once in the record: {told}"
