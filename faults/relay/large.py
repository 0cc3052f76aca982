"""Very large bodies: a reply, one that unpacks to more, one without a line end, a request. Memory stays bounded."""

from __future__ import annotations

import time
from pathlib import Path

from faults.relay.callers import call_relay
from faults.relay.installation import Installation, installation
from tests.servers.processes import wait_for

MOST_GROWTH = 64 * 1024  # KB
# The relay holds a request while it sends it: as it came, read, and as it is sent.
MOST_OF_REQUEST = 5


def run(folder: Path, server: str, rounds: int) -> str:
    size = max(20, 5 * rounds)
    with installation(folder, server=server, PARLEY_RELAY_BODY_MB=str(size + 1)) as here:
        for number in range(20):
            call_relay(here, number)
        wait_for(lambda: len(here.recorded().rows) == 20, seconds=60, what="the first calls in the record")
        before, relayed = peak_memory(here), relay_memory(here)
        kinds = (f" large {size}", f" bomb {10 * size}", f" line {size}", "y" * size * 1024 * 1024)
        for number, more in enumerate(kinds, start=101):
            status = call_relay(here, number, more=more).status
            assert status == 200, f"the reply to{more[:20]} came with status {status}"
        began = time.monotonic()
        recorded = here.settled(at_least=24)
        seconds, growth = time.monotonic() - began, peak_memory(here) - before
        relayed = relay_memory(here) - relayed
    unread = [row for row in recorded.rows if row["unread"]]
    assert len(unread) == 3, f"{len(unread)} replies are put aside instead of 3"
    assert growth <= MOST_GROWTH, f"the digester grew by {growth // 1024} MB"
    assert relayed <= MOST_GROWTH + MOST_OF_REQUEST * size * 1024, f"the relay grew by {relayed // 1024} MB"
    told = f"the digester grew by {growth // 1024} MB in {seconds:.1f} s, the relay by {relayed // 1024} MB"
    return f"replies of {size} MB, of {10 * size} MB unpacked, of one line, and a request of {size} MB: {told}"


def relay_memory(here: Installation) -> int:
    """The most that the server itself has taken, in KB."""
    assert here.process is not None
    return _peak(Path(f"/proc/{here.process.popen.pid}/status"))


def peak_memory(here: Installation) -> int:
    """Of the digester, in KB."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = status.with_name("cmdline").read_bytes()
            session = int(status.with_name("stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError):
            continue
        if b"relay.digest" in command and here.process is not None and session == here.process.popen.pid:
            return _peak(status)
    raise AssertionError("the digester does not run as a process of its own")


def _peak(status: Path) -> int:
    return int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
