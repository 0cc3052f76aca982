"""A steady stream of calls, begun by the clock and not by the answers, and how soon each is in the history."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

from bench.relay.history import History
from bench.relay.load import Body, Caller, Run
from bench.relay.processes import Side

PER_SECOND = 300
CONNECTIONS = 48
# One in so many is looked for in the history.
SAMPLED = 10
LOOK_SECONDS = 0.02


@dataclass
class Lags:
    """When a call had ended for its caller, and how much later it was found in the history, with its end."""

    waiting: dict[str, float] = field(default_factory=dict)
    found: list[tuple[float, float]] = field(default_factory=list)

    def quantile(self, share: float, *, since: float = 0.0, until: float = float("inf")) -> float:
        ordered = sorted(lag for at, lag in self.found if since <= at <= until)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def sustained(ours: Side, history: History, body: Body, *, seconds: float) -> tuple[Run, Lags]:
    run, lags, is_over = Run(), Lags(), threading.Event()
    looking = threading.Thread(target=_look, args=(history, lags, is_over))
    looking.start()
    begun = time.perf_counter()
    asyncio.run(_ask_by_the_clock(ours, body, run, lags, seconds=seconds))
    run.seconds = time.perf_counter() - begun
    ours.carried += run.requests
    ours.settle()
    is_over.set()
    looking.join()
    return run, lags


async def _ask_by_the_clock(side: Side, body: Body, run: Run, lags: Lags, *, seconds: float) -> None:
    idle: asyncio.Queue[Caller] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        caller = Caller(side, body, run)
        await caller.connect()
        idle.put_nowait(caller)
    begun, tasks = time.perf_counter(), set()
    for number in range(int(PER_SECOND * seconds)):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.perf_counter()))
        tasks.add(asyncio.create_task(_ask(await idle.get(), idle, lags, is_sampled=number % SAMPLED == 0)))
    await asyncio.gather(*tasks)


async def _ask(caller: Caller, idle: asyncio.Queue[Caller], lags: Lags, *, is_sampled: bool) -> None:
    await caller.ask()
    if is_sampled:
        lags.waiting[caller.exchange] = time.perf_counter()
    idle.put_nowait(caller)


def _look(history: History, lags: Lags, is_over: threading.Event) -> None:
    while not is_over.wait(LOOK_SECONDS) or lags.waiting:
        if waiting := list(lags.waiting):
            found = history.ended(waiting)
            now = time.perf_counter()
            lags.found += [(lags.waiting[name], now - lags.waiting.pop(name)) for name in found]
