"""Taking turns: a thing and its baseline are timed alternately, so that a busy machine slows both."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One row of the table. `goal` is what the ratio or rate has to reach; None: told, not asked for."""

    what: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def reached(self) -> bool:
        if self.goal is None:
            return True
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass
class Table:
    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        print(as_row(line), flush=True)

    @property
    def reached(self) -> bool:
        return all(line.reached for line in self.lines)


HEAD = "| what | measured | goal | |\n|---|---|---|---|"


def as_row(line: Line) -> str:
    goal = "" if line.goal is None else f"{'≥' if line.at_least else '≤'} {line.goal:g} {line.unit}"
    mark = "" if line.goal is None else ("yes" if line.reached else "**no**")
    return f"| {line.what}{f' ({line.note})' if line.note else ''} | {line.value:,.2f} {line.unit} | {goal} | {mark} |"


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(first: Callable[[], object], second: Callable[[], object], *, rounds: int) -> tuple[float, float]:
    """The medians of both, in seconds, after one round to warm up."""
    first(), second()
    gc.collect()
    times = [(seconds(first), seconds(second)) for _ in range(rounds)]
    return statistics.median(time for time, _ in times), statistics.median(time for _, time in times)


def p95_in_turns(first: list[Callable[[], object]], second: list[Callable[[], object]]) -> tuple[float, float]:
    """The 95th percentiles of many different pieces of work, each beside its baseline.

    Each is done once before, so that neither pays for reading what the other then finds in memory.
    """
    times = []
    for one, other in zip(first, second, strict=True):
        one(), other()
        times.append((seconds(one), seconds(other)))
    return p95([time for time, _ in times]), p95([time for _, time in times])


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


@contextmanager
def memory_growth() -> Iterator[list[float]]:
    """How far the peak of resident memory went above where it stood, in MiB (Linux: the peak is reset first)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    growth: list[float] = []
    yield growth
    growth.append(_resident("VmHWM") - before)


def _resident(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
