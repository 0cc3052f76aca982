"""Markdown that is still being written, cut into blocks that can no longer change and a tail that can.

A streamed answer is rendered block by block: each finished block once, only the tail again with every piece that comes.
So the cost is linear, and nothing that was read flickers. Where it is in doubt whether a block has ended, it has not:
two blocks in one piece render as they do in the whole text, half a block does not.

What a reader may see until the answer is complete and rendered whole: a link or a footnote whose definition is in
another block as it was typed, notes of footnotes where they stand in the text and numbered from 1 in each block, and
colours or plain text where the whole has used up its limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise

from history.markdown_notes import NOTE
from history.markdown_syntax import FENCE, FORMULA, ITEM, FormulaLines, ends_fence, indent_of

_BREAK = re.compile(r"\r\n|\r(?!\Z)")
_UNSEEN = str.maketrans(
    # The renderer keeps STX and ETX for itself; the others are space to some patterns and text to others.
    {"\0": "\ufffd", "\x02": None, "\x03": None, **dict.fromkeys("\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029", " ")}
)
_MAYBE_ITEM = re.compile(r" *(?:[-*+]|\d+[.)])(?: |$)")
_QUOTE = re.compile(r" {0,3}>")
_DEFINITION = re.compile(r" {0,3}\[[^\]]*\]:")
# The beginning of a line that is text, whatever follows.
_TEXT = re.compile(r"[^\s\-*+>\[\d`~$\\]|\d{1,9}[^\d.)]|\d{10}")


@dataclass(frozen=True)
class Split:
    finished: tuple[str, ...]
    tail: str


class BlockStream:
    """The same for text that comes in pieces: what has become finished, piece by piece."""

    def __init__(self) -> None:
        self.tail = ""

    def feed(self, more: str) -> tuple[str, ...]:
        split = split_blocks(self.tail + more)
        self.tail = split.tail
        return split.finished


def normalised(text: str) -> str:
    """One kind of line break, and no characters that nobody sees. A last `\\r` may be half of a break: it stays."""
    return _BREAK.sub("\n", text).translate(_UNSEEN)


def split_blocks(text: str) -> Split:
    text = normalised(text)
    lines = text.split("\n")
    begins = [0, *accumulate(len(line) + 1 for line in lines)]
    cuts = [begins[place] for place in _Reader([line.expandtabs(4) for line in lines]).cuts()]
    pieces = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
    return Split(tuple(_without_gap(piece) for piece in pieces[:-1] if piece.strip()), pieces[-1])


def _without_gap(piece: str) -> str:
    """Without the empty lines at its end, but with all of its last line: a mark and a space are an empty item."""
    return piece[: piece.find("\n", len(piece.rstrip()))]


class _Reader:
    """Goes through the lines, the last of which may be the beginning of a line, and finds where blocks begin."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.last = lines, len(lines) - 1
        self.last_gap = max((place for place in range(self.last) if not lines[place].strip()), default=-1)
        self.formulas = FormulaLines()
        self.kinds: set[str] = set()  # what the open block holds that may go on behind an empty line
        self.after_gap = self.closed = True

    def cuts(self) -> list[int]:
        """The last one is where the tail begins."""
        cuts: list[int] = []
        place = 0
        while place < self.last:
            line = self.lines[place]
            behind = self._behind(place)
            if not line.strip():
                self.after_gap = True
                self.closed = self.closed or not self.kinds
            elif self._begins(line):
                cuts.append(place)
                self._read(line, new=True)
            else:
                self._read(line, new=False)
            if behind is None:
                return cuts
            place = behind
        return [*cuts, self.last] if self._begins_for_sure(self.lines[self.last]) else cuts

    def _behind(self, place: int) -> int | None:
        """Behind the line, the code or the formula that begins here; None if that depends on what is yet to come."""
        line = self.lines[place]
        if fence := FENCE.match(line):
            ends = (at + 1 for at in range(place + 1, self.last) if ends_fence(self.lines[at], fence["fence"]))
            return next(ends, None)
        behind = self.formulas.end_of(self.lines, place)
        if behind is None:
            return place + 1 if place < self.last_gap or not FORMULA.match(line) else None
        return behind if behind <= self.last else None

    def _begins(self, line: str) -> bool:
        """Does a block begin with this line?"""
        indent = indent_of(line)
        if self.closed:
            return True
        if not (self.after_gap or FENCE.match(line)):
            # A list begins right under its sentence, but not inside of a note.
            return bool(ITEM.match(line)) and indent <= 3 and not self.kinds & {"list", "note"}
        return not (
            ("list" in self.kinds and (_MAYBE_ITEM.match(line) or indent > 0))
            or (self.kinds & {"code", "note"} and indent >= 4)
            or ("quote" in self.kinds and _QUOTE.match(line))
            # What is taken out of the text does not part what stands around it.
            or (self.kinds and _DEFINITION.match(line))
        )

    def _begins_for_sure(self, line: str) -> bool:
        """The same for a line that has only begun."""
        return self.closed or bool(_TEXT.match(line) and self._begins(line))

    def _read(self, line: str, *, new: bool) -> None:
        if new:
            self.kinds = set()
        indent = indent_of(line)
        if NOTE.match(line):
            self.kinds.add("note")
        elif _QUOTE.match(line):
            self.kinds.add("quote")
        elif indent >= 4:
            self.kinds.add("code")
        elif _MAYBE_ITEM.match(line):
            self.kinds.add("list")
        # Code between fences is a block by itself, even with no empty line behind it.
        self.after_gap = bool(FENCE.match(line))
        self.closed = self.after_gap and not self.kinds
