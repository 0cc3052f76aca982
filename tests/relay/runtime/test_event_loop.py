"""Input of more than 64 KB is parsed in a thread, however it is cut into chunks."""

from __future__ import annotations

import threading

import pytest

from relay.runtime.event_loop import LARGE, StreamParser

BEFORE = b"a\n"


class Lines:
    """Counts the characters of each line, and notes the lines that were read in this thread."""

    def __init__(self) -> None:
        self.rest, self.thread = b"", threading.current_thread()
        self.read_here: list[int] = []

    def feed(self, chunk: bytes) -> list[int]:
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        sizes = [len(line) for line in lines]
        if threading.current_thread() is self.thread:
            self.read_here += sizes
        return sizes


@pytest.mark.parametrize("first", [10, LARGE - len(BEFORE), LARGE, 200_000])
@pytest.mark.parametrize("chunk", [1_000, LARGE, 200_000])
async def test_a_long_line_is_never_read_in_the_event_loop(first: int, chunk: int) -> None:
    lines, line = Lines(), b"x" * 250_000
    parser = StreamParser(lines.feed)
    sizes = await parser.feed(BEFORE + line[:first])
    for start in range(first, len(line), chunk):
        sizes += await parser.feed(line[start : start + chunk])
    sizes += await parser.feed(b"\n")
    assert sizes == [1, len(line)]
    assert max(lines.read_here, default=0) <= LARGE
