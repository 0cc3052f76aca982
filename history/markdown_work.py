"""How much work a text may make for the renderer, counted in steps that take about a microsecond each.

Python-Markdown's cost is not linear: it walks to the end of the paragraph for every bracket, parses the rest of a block
again after every heading, and pairs stars with all stars before them. So each of these is charged for what it does, and
a text that asks for more than ordinary writing of its length ever does is given up. A count and no clock: the same text
has the same end on every machine. `bench/rendering.py` looks for texts that cost more than they are charged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import markdown
from markdown.blockprocessors import BlockProcessor, ReferenceProcessor
from markdown.inlinepatterns import InlineProcessor, Pattern
from markdown.preprocessors import Preprocessor

STEPS = 120_000

_TABLE = re.compile(r".*\n *[|:-][|:\- ]*(?:\n|$)")
_EMPHASIS = re.compile(r"\*+|(?<!\w)_+|_+(?!\w)")
# Where links lead, `[name]: address "title"`, by a pattern that never goes back over what it has read.
_REFERENCE = re.compile(
    r"""^[ ]{0,3}+\[([^\[\]]*+)\]:[ ]*+(?:\n[ ]*+)?(\S++)[ ]*+(?:\n[ ]*+)?((["'])(.*)\4[ ]*+|\((.*)\)[ ]*+)?$""",
    re.MULTILINE,
)
# A longer run is no emphasis and no heading, but there is a pattern that would look at it in every way there is.
_LONG_RUN = re.compile(r"\*{200}|_{200}|#{200}")


class TooMuchWork(Exception):
    """The text would keep the renderer busy for longer than anybody waits for a page."""


class Work:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.left = float(STEPS)

    def spend(self, steps: float) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork


def meter(md: markdown.Markdown, work: Work) -> None:
    """Charge all that this renderer does from now on. To be called when all its patterns are registered."""
    for pattern in md.inlinePatterns:
        _charge(pattern, "handleMatch", work, steps=_of_match)
        for name, steps in _WALKS.items():
            if hasattr(pattern, name):
                _charge(pattern, name, work, steps=steps)
    md.inlinePatterns.register(_Texts(work), "work", 1000)
    md.parser.blockprocessors.register(_Blocks(md.parser, work), "work", 1000)
    md.preprocessors.register(_Runs(md), "work", 1)
    md.parser.blockprocessors.register(_References(md.parser), "reference", 15)


def _charge(pattern: Pattern, name: str, work: Work, *, steps: Callable[..., float]) -> None:
    """Have one of the pattern's methods pay for what it did; `steps` are told its arguments and its answer."""
    method = getattr(pattern, name)

    def charged(*given: Any) -> Any:
        answer = method(*given)
        work.spend(steps(*given, answer))
        return answer

    setattr(pattern, name, charged)


def _of_match(match: re.Match[str], data: str, answer: tuple[Any, Any, Any]) -> float:
    # What is found is cut out of a text that is copied for it.
    return (3 if answer[0] is None else 12) + len(data) / 3000


# The methods that go through a text character by character, and how far they went.
_WALKS: dict[str, Callable[..., float]] = {
    "getText": lambda data, index, answer: (answer[1] - index) / 10,
    "getLink": lambda data, index, answer: (answer[2] - index) / 10,
    "find_code_spans": lambda start, text, answer: ((answer[1] or len(text)) - start) / 10,
}


class _References(ReferenceProcessor):
    RE = _REFERENCE


class _Runs(Preprocessor):
    """After code was taken out of the way."""

    def run(self, lines: list[str]) -> list[str]:
        if any(map(_LONG_RUN.search, lines)):
            raise TooMuchWork
        return lines


class _Blocks(BlockProcessor):
    """Asked first about every block and about every rest of one, it only counts."""

    def __init__(self, parser: Any, work: Work) -> None:
        super().__init__(parser)
        self.work = work

    def test(self, parent: ElementTree.Element, block: str) -> bool:
        lines = block.count("\n")
        self.work.spend(8 + len(block) / 150 + lines * (2 if "|" in block else 0.4))
        if lines and "|" in block.partition("\n")[0]:
            self.work.spend(sum(map(_of_row, block.split("\n") if _TABLE.match(block) else block.split("\n", 2)[:2])))
        return False


def _of_row(line: str) -> float:
    """Cells are made for all, and whether a bar is inside of code is asked for each bar and each piece of code."""
    bars, ticks = line.count("|"), line.count("`")
    return 6 + 4 * bars + (bars + ticks) * ticks / 40


class _Texts(InlineProcessor):
    """Asked first about every text, likewise."""

    def __init__(self, work: Work) -> None:
        super().__init__(r"\A.")
        self.work = work

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[None, None, None]:  # type: ignore[override]  # noqa: N802
        marks = _EMPHASIS.findall(data)
        self.work.spend(27 + len(data) / 10 + len(marks) ** 2 / 1000 + 4 * sum(map(len, marks)))
        return None, None, None
