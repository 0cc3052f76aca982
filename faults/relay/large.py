"""A very large reply, and a small one that unpacks to a very large one: the digester's memory stays bounded."""

from __future__ import annotations

import time
from pathlib import Path

from faults.relay.callers import ask
from faults.relay.house import House, house
from tests.house.processes import wait_for

MOST_GROWTH = 64 * 1024  # KB


def run(folder: Path, server: str, rounds: int) -> str:
    size = max(20, 5 * rounds)
    with house(folder, server=server) as here:
        for number in range(20):
            ask(here, number)
        wait_for(lambda: len(here.recorded().rows) == 20, seconds=60, what="the first calls in the record")
        before = peak_memory(here)
        for number, more in ((101, f" large {size}"), (102, f" bomb {10 * size}")):
            status = ask(here, number, more=more).status
            assert status == 200, f"the reply to{more} came with status {status}"
        began = time.monotonic()
        recorded = here.settled(at_least=22)
        seconds, growth = time.monotonic() - began, peak_memory(here) - before
    unread = [row for row in recorded.rows if row["unread"]]
    assert len(unread) == 2, f"{len(unread)} replies are put aside instead of 2"
    assert growth <= MOST_GROWTH, f"the digester grew by {growth // 1024} MB"
    told = f"the digester grew by {growth // 1024} MB in {seconds:.1f} s"
    return f"replies of {size} MB and of {10 * size} MB unpacked: {told}"


def peak_memory(here: House) -> int:
    """Of the digester, in KB."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = status.with_name("cmdline").read_bytes()
            session = int(status.with_name("stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError):
            continue
        if b"relay.gateway.digest" in command and here.process is not None and session == here.process.popen.pid:
            return int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    raise AssertionError("the digester does not run as a process of its own")
