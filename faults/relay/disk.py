"""The disk of the journal is full under load: calls go on, what could not be kept is counted, to the call."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.relay.callers import Load
from faults.relay.installation import installation
from faults.relay.ledger import check_acknowledged, check_all_ended, check_nothing_doubled

MB = 1024 * 1024
SIZE = 32


def run(folder: Path, server: str, rounds: int) -> str:
    load, seconds = Load(), max(2.0, 0.25 * rounds)
    with small_disk(folder / "small") as small:
        if small is None:
            return "SKIPPED: a small disk is a mount, and that takes root"
        with installation(folder, server=server, data=small / "data") as here:
            with load.on(here):
                time.sleep(2)
                with full(small):
                    time.sleep(seconds)
                time.sleep(2)
            recorded = here.settled(at_least=len(load.calls))
    refused = [one for one in load.calls if not one.is_whole]
    assert not refused, f"{len(refused)} calls were not answered whole, the first with {refused[0].status}"
    missing = check_acknowledged(load.calls, recorded, ends=("done", "not_kept"))
    assert len(missing) == recorded.lost, f"{len(missing)} calls are missing and {recorded.lost} are counted as lost"
    check_nothing_doubled(recorded)
    check_all_ended(recorded)
    cut = sum(1 for row in recorded.rows if row["lost"])
    return (
        f"{seconds:.0f} s, full disk: {len(load.calls):,} calls, all answered; {recorded.lost:,} counted as lost and "
        f"{cut} replies as cut off, everything else in the record"
    )


@contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """None where mounting is not permitted."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:  # noqa: S603 - our words
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)  # noqa: S603, S607 - our words


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """To the last byte; what becomes free meanwhile is taken, too."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    try:
        yield
    finally:
        ballast.unlink()
