"""Ratios of CPU time at two sizes of input, to tell linear work from quadratic.

    assert_linear(parse, lambda n: b"x" * n, size=100_000)

compares CPU time at size n and at 2n: the ratio is 2 for linear work and 4 for quadratic work. Wall-clock time is
never compared.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

LIMIT = 2.5
# A single measurement lasts at least this long: the clock of CPU time ticks in units of up to a millisecond.
LEAST_SECONDS = 0.004
RUNS = 3
ATTEMPTS = 3
MOST_REPEATS = 10_000

# mallopt's names and glibc's defaults.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
USUAL_THRESHOLD, LARGEST_THRESHOLD = 128 * 1024, 32 * 1024 * 1024


def assert_linear(
    work: Callable[[T], object], make: Callable[[int], T], *, size: int, limit: float = LIMIT, runs: int = RUNS
) -> None:
    """Fail unless `work(make(2 * size))` takes at most `limit` times the CPU time of `work(make(size))`.

    Noise only ever adds time, so the best of `runs` counts; a ratio above the limit is measured again before it fails.
    Choose `size` so that the work takes a few milliseconds: shorter work is repeated, and fixed costs hide the growth.
    """
    ratio = min_ratio(work, make(size), make(2 * size), limit=limit, runs=runs)
    assert ratio <= limit, f"twice the input takes {ratio:.1f} times the CPU time (at most {limit} is linear)"


def min_ratio(work: Callable[[T], object], small: T, large: T, *, limit: float = LIMIT, runs: int = RUNS) -> float:
    """The lowest ratio of a few attempts; the first one within the limit ends them."""
    # What is built once (compiled patterns, caches) is not counted, nor the first large piece of memory: the C library
    # takes it from the system at first, and from its own heap afterwards.
    with memory_from_heap():
        work(large)
        repeats, before = _repeats(work, small)
        # One more measurement of each is enough where nothing disturbs them: most tests end here.
        before = min(before, cpu_seconds(work, small, repeats))
        lowest = cpu_seconds(work, large, repeats) / before
        for _ in range(ATTEMPTS):
            if lowest <= limit:
                break
            pairs = [(cpu_seconds(work, small, repeats), cpu_seconds(work, large, repeats)) for _ in range(runs)]
            lowest = min(lowest, min(after for _, after in pairs) / min(before for before, _ in pairs))
        return lowest


@contextlib.contextmanager
def memory_from_heap() -> Iterator[None]:
    """Keep freed memory in the heap and take large blocks from it. Other C libraries than glibc are left alone."""
    _set_thresholds(mmap=LARGEST_THRESHOLD, trim=2**30)
    try:
        yield
    finally:
        _set_thresholds(mmap=USUAL_THRESHOLD, trim=USUAL_THRESHOLD)


def _set_thresholds(*, mmap: int, trim: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, mmap)
        mallopt(TRIM_THRESHOLD, trim)


def cpu_seconds(work: Callable[[T], object], value: T, repeats: int = 1) -> float:
    """CPU time of this process, without the garbage collector's rounds, which come at any time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        for _ in range(repeats):
            work(value)
        return time.process_time() - start
    finally:
        if was_enabled:
            gc.enable()


def _repeats(work: Callable[[T], object], value: T) -> tuple[int, float]:
    """How often to repeat the work in one measurement, and what that measurement takes."""
    repeats = 1
    while (seconds := cpu_seconds(work, value, repeats)) < LEAST_SECONDS and repeats < MOST_REPEATS:
        repeats *= 2
    return repeats, seconds
