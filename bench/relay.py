"""`python -m bench.relay`: the relay beside a bare one under the same server, in turns; ratios, and a table.

--seconds N   how long each measurement lasts (5)
--rounds N    how often the two take turns (3; the median counts)
--server S    uvicorn, daphne or granian
--quick       one short round, to see that it works

The worker's own CPU is read from /proc. One worker each, recording in full; what the digester does is a process of its
own and not in the worker's CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import HEAD, Line, Table

AT_ONCE = 16
PACED_AT_ONCE = 20
LARGE = 400 * 1024
PATH = "/v1/chat/completions"
SHORT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}'


@dataclass
class Side:
    """One of the two: where it is, and the process whose CPU counts."""

    name: str
    port: int
    pid: int
    headers: bytes = b""
    carried: int = 0

    def cpu(self) -> float:
        return sum(map(_cpu, self.workers()))

    def digestion(self) -> float:
        return sum(map(_cpu, self.digesters()))

    def memory(self) -> float:
        """PSS in MB."""
        return sum(map(_pss, self.workers()))

    def workers(self) -> list[int]:
        return [pid for pid in [self.pid, *_children(self.pid)] if not _is_digester(pid)]

    def digesters(self) -> list[int]:
        below = [pid for child in _children(self.pid) for pid in (child, *_children(child))]
        return [pid for pid in below if _is_digester(pid)]


@dataclass
class Run:
    """What one load gave."""

    requests: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    digestion: float = 0.0
    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_ms(self) -> float:
        return self.cpu / max(self.requests, 1) * 1000


class Caller:
    """One connection that asks again and again."""

    def __init__(self, side: Side, body: bytes, run: Run) -> None:
        self.side, self.run = side, run
        head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
        self.request = head % (PATH.encode(), side.headers, len(body)) + body

    async def until(self, end: float, *, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.side.port, limit=2**20)
        while time.perf_counter() < end:
            writer.write(self.request)
            await self.read(reader)
            self.run.requests += 1
        writer.close()

    async def read(self, reader: asyncio.StreamReader) -> None:
        begun = last = time.perf_counter()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.decode())
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
            return
        is_first = True
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
            now = time.perf_counter()
            (self.run.firsts if is_first else self.run.gaps).append(now - (begun if is_first else last))
            is_first, last = False, now
        await reader.readexactly(2)


def load(side: Side, body: bytes, *, at_once: int, seconds: float, spread: float = 0.0) -> Run:
    """`spread`: the callers begin one after the other within so many seconds, as people do, not in step."""
    run = Run()

    async def all_of_them() -> None:
        end = time.perf_counter() + seconds
        callers = [Caller(side, body, run) for _ in range(at_once)]
        await asyncio.gather(*(caller.until(end, after=n * spread / at_once) for n, caller in enumerate(callers)))

    before, digested, begun = side.cpu(), side.digestion(), time.perf_counter()
    asyncio.run(all_of_them())
    run.seconds, run.cpu = time.perf_counter() - begun, side.cpu() - before
    run.digestion = side.digestion() - digested
    side.carried += run.requests
    return run


def in_turns(ours: Side, bare: Side, body: bytes, given: argparse.Namespace, *, at_once: int) -> list[tuple[Run, Run]]:
    load(ours, body, at_once=at_once, seconds=0.5), load(bare, body, at_once=at_once, seconds=0.5)
    pairs = []
    for _ in range(given.rounds):
        mine = load(ours, body, at_once=at_once, seconds=given.seconds)
        pairs.append((mine, load(bare, body, at_once=at_once, seconds=given.seconds)))
    return pairs


def median(pairs: list[tuple[Run, Run]], of: Callable[[Run, Run], float]) -> float:
    return statistics.median(of(ours, bare) for ours, bare in pairs)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def throughput(table: Table, what: str, pairs: list[tuple[Run, Run]], *, rate: float, cpu: float | None) -> None:
    told = f"{median(pairs, lambda o, b: o.rate):,.0f}/s beside {median(pairs, lambda o, b: b.rate):,.0f}/s"
    ratio = median(pairs, lambda o, b: o.rate / b.rate)
    table.add(Line(what, ratio, "× the bare relay", goal=rate, at_least=True, note=told))
    cost = median(pairs, lambda o, b: o.cpu_ms / b.cpu_ms)
    told = f"{median(pairs, lambda o, b: o.cpu_ms):.2f} ms beside {median(pairs, lambda o, b: b.cpu_ms):.2f} ms"
    table.add(Line(f"{what}: CPU of the worker", cost, "×", goal=cpu, note=told))


def paced(table: Table, pairs: list[tuple[Run, Run]]) -> None:
    spread = [quantile(bare.firsts, 0.5) for _, bare in pairs]
    told = f"the bare relay's own spread {min(spread):.1f}–{max(spread):.1f} ms"
    for name, share, goal in (("p50", 0.5, 1.0), ("p95", 0.95, 4.0)):
        added = median(pairs, lambda o, b, q=share: quantile(o.firsts, q) - quantile(b.firsts, q))  # type: ignore[misc]
        table.add(Line(f"paced streams: added first token {name}", added, "ms", goal=goal, note=told))
    gap = median(pairs, lambda o, b: quantile(o.gaps, 0.99) - quantile(b.gaps, 0.99))
    table.add(Line("paced streams: added gap p99", gap, "ms", goal=3.0))


def measure(ours: Side, bare: Side, database: Path, given: argparse.Namespace) -> Table:
    table = Table()
    print(HEAD)
    whole = in_turns(ours, bare, SHORT % b"", given, at_once=AT_ONCE)
    throughput(table, "whole replies, 16 at a time", whole, rate=0.4, cpu=1.6)
    together = median(whole, lambda o, b: (o.cpu + o.digestion) / o.requests / (b.cpu / b.requests))
    table.add(Line("whole replies: CPU with the digestion", together, "×", goal=5.0, note="as far as it had come"))
    bursts = in_turns(ours, bare, SHORT % b',"stream":true', given, at_once=AT_ONCE)
    throughput(table, "bursts of 64 tokens, 16 at a time", bursts, rate=0.35, cpu=1.8)
    paced(table, in_turns(ours, bare, SHORT % b',"stream":true,"paced":1', given, at_once=PACED_AT_ONCE))
    text = "word " * (LARGE // 5)
    large = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    throughput(table, "bodies of 400 KB", in_turns(ours, bare, large, given, at_once=4), rate=0.3, cpu=None)
    table.add(recorded(database, ours))
    table.add(Line("memory of the worker", ours.memory(), "MB PSS", goal=120.0, note="Django included"))
    return table


def recorded(database: Path, ours: Side) -> Line:
    """Every call that was carried is in the history with its answer, once; the digester gets a minute to be through."""
    end = time.monotonic() + 60
    while (found := _stored(database))[0] < ours.carried and time.monotonic() < end:
        time.sleep(0.5)
    stored, answered = found
    told = f"{stored:,} of {ours.carried:,}, {answered:,} with their answer"
    return Line("recorded", answered / max(ours.carried, 1) * 100, "%", goal=100.0, at_least=True, note=told)


def _stored(database: Path) -> tuple[int, int]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        query = "SELECT count(*), count(DISTINCT message_id) FROM history_exchange"
        [(stored, answered)] = connection.execute(query).fetchall()
    return stored, answered


# The processes.


@contextmanager
def sides(server: str, folder: Path) -> Iterator[tuple[Side, Side]]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.house.processes import clean_environment, free_port, manage, running, serving

    upstream, ours, bare = free_port(), free_port(), free_port()
    address = f"http://127.0.0.1:{upstream}"
    variables = {
        "PARLEY_DATA_DIR": str(folder),
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "sk-bench",
        "PARLEY_PROVIDERS": str(_providers(folder, address)),
        "PARLEY_LOG_LEVEL": "ERROR",
        "PARLEY_LOOPBACK_ONLY": "off",  # as people run it
        "PARLEY_JOURNAL_MB": "100000",
    }
    manage("migrate", "--verbosity=0", **variables)
    person = "from project.accounts.models import User; User.objects.create_user('bench', is_staff=True)"
    manage("shell", "--no-imports", "--command", person, **variables)
    key = json.loads(manage("keys", "create", "bench", "--recording", "full", "--json", **variables).stdout)["key"]
    with ExitStack() as stack:
        start = stack.enter_context
        python = [sys.executable, "-m", "bench.upstream", str(upstream)]
        start(running(python, log=folder / "upstream", environment=clean_environment()))
        mine = start(serving(server, application="project.asgi:application", port=ours, log=folder / "ours",
                             environment=clean_environment(**variables)))  # fmt: skip
        other = start(serving(server, application="bench.bare_relay:application", port=bare, log=folder / "bare",
                              environment=clean_environment(BENCH_UPSTREAM=address)))  # fmt: skip
        yield (
            Side("Parley", ours, mine.popen.pid, headers=f"authorization: Bearer {key}\r\n".encode()),
            Side("bare", bare, other.popen.pid),
        )


def _providers(folder: Path, address: str) -> Path:
    file = folder / "providers.toml"
    file.write_text(
        f'[[providers]]\nname = "bench"\ndialect = "openai-chat"\nbase_url = "{address}/v1"\nmodels = ["m"]\n'
    )
    return file


def _is_digester(pid: int) -> bool:
    return b"relay.gateway.digest" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _children(pid: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=["uvicorn", "daphne", "granian"], default="uvicorn")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.rounds = 1.0, 1
    with (
        tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp") as folder,
        sides(given.server, Path(folder)) as (ours, bare),
    ):
        print(f"\n### The relay under {given.server}\n")
        table = measure(ours, bare, Path(folder) / "parley.sqlite3", given)
    return 0 if table.reached else 1


if __name__ == "__main__":
    sys.exit(main())
