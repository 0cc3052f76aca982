"""An answer on its way, as whoever watches it sees it: numbered frames in, what changed on the page out.

A frame is a small JSON object. Its number `n` counts up within its run, so a page that has seen frame 41 knows that 42
is next, that 40 is a repetition and that 44 means something was lost. Frames come through the channel layer; the same
state can be taken up at any time from the answer so far, which names the frame that it includes.

Text is shown by finished blocks: a block that can no longer change is rendered once, and only the open end again. Plain
words in the middle of a line change nothing before them, so they are simply put behind it: most frames render nothing.
So the cost of an answer grows with its length, not with the square of it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.utils.safestring import SafeString

from history.assembly import NO_ARGUMENTS
from history.entries import ModelOutput, Part, Reasoning, Text, ToolRequest
from history.events import Event, ReasoningPiece, TextPiece, ToolCallPiece
from history.markdown import render
from history.markdown_blocks import split_blocks
from relay.live_html import Tail, more_words, new_part, open_end, prose

Kind = Literal["text", "reasoning", "call"]
Piece = list[str]  # kind, part, text; of a call also its id and the tool's name
Frame = dict[str, Any]

KEPT_CHANGES = 256
SHOWN_ARGUMENTS = 4_000
# At the start of a line a few characters decide what it is: a list, a heading, a quotation.
LINE_START = 8

# What may change how the text before it looks; a line break always does.
_MEANING = re.compile(r"[*_`~\[\]<>$|\\&^\r\n\t]")


def piece_of(event: Event) -> Piece | None:
    """What a watcher wants to see of an event, if anything."""
    match event:
        case TextPiece() if event.text:
            return ["text", event.part, event.text]
        case ReasoningPiece():
            return ["reasoning", event.part, event.text]
        case ToolCallPiece():
            return ["call", event.part, event.arguments, event.call_id, event.name]
    return None


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces of one part that follow each other are one piece."""
    together: list[Piece] = []
    for piece in pieces:
        last = together[-1] if together else None
        if last and last[1] == piece[1] and last[0] == piece[0]:
            last[2] += piece[2]
            if len(last) > 3:
                last[3:] = [old or new for old, new in zip(last[3:], piece[3:], strict=True)]
        else:
            together.append(list(piece))
    return together


def pieces_of(output: ModelOutput, names: Sequence[str]) -> list[Piece]:
    """The answer so far as pieces, for somebody who comes in the middle."""
    known = dict(enumerate(names))
    found = (_whole(part, known.get(place, f"part-{place}")) for place, part in enumerate(output.parts))
    return [piece for piece in found if piece]


def _whole(part: Part, name: str) -> Piece | None:
    match part:
        case Text():
            return ["text", name, part.text]
        case Reasoning():
            return ["reasoning", name, part.text]
        case ToolRequest():
            # Until its arguments begin a call has none, which is stored as an empty object.
            return ["call", name, part.arguments.removeprefix(NO_ARGUMENTS), part.call_id, part.name]
    return None


@dataclass(slots=True)
class LivePart:
    """One part on the page, in `element`. `blocks` are finished, as HTML; `text` is the open end, as it was written."""

    index: int
    kind: Kind
    element: str = ""
    name: str = ""
    blocks: list[str] = field(default_factory=list)
    text: str = ""
    is_open: bool = False

    @property
    def tail(self) -> Tail:
        if self.kind != "text" or not self.text:
            return Tail()
        return Tail.of(self.text, self.rendered(self.text, len(self.blocks)))

    @property
    def prose(self) -> SafeString:
        return prose(self.element, self.blocks, self.tail)

    def rendered(self, block: str, number: int) -> str:
        return render(block, prefix=f"live-{self.index}-{number}-")

    def can_take(self, more: str) -> bool:
        """Whether this is only more of the same paragraph: nothing that means something, not near the line's start."""
        line = self.text[self.text.rfind("\n") + 1 :]
        ends_a_link = ")" in more and "](" in line
        return self.is_open and len(line) >= LINE_START and not _MEANING.search(more) and not ends_a_link


@dataclass(frozen=True, slots=True)
class Grown:
    """What one frame added to a part: whole blocks and a new open end, or simply more text behind it."""

    part: LivePart
    is_new: bool
    blocks: tuple[str, ...] = ()
    tail: Tail | None = None
    text: str = ""

    @property
    def prose(self) -> SafeString:
        return prose(self.part.element, self.blocks, self.tail or Tail())

    @property
    def is_spoken(self) -> bool:
        """Text, which needs no words of ours around it."""
        return self.part.kind == "text"

    @property
    def html(self) -> str:
        """How a part of text comes, and how any part changes that is on the page already."""
        element = self.part.element
        if self.is_new:
            return new_part(f"{element.rpartition('-')[0]}-parts", self.prose)
        return more_words(element, self.text) if self.tail is None else open_end(element, self.blocks, self.tail)


@dataclass(slots=True)
class Change:
    """What one frame changed. `html` remembers how it looks, by language: one rendering serves every page."""

    n: int
    grown: tuple[Grown, ...] = ()
    html: dict[str, str] = field(default_factory=dict)

    @property
    def has_words_of_ours(self) -> bool:
        """A new part that is no text comes with a heading."""
        return any(grown.is_new and not grown.is_spoken for grown in self.grown)


class LiveAnswer:
    """The answer of one exchange as pages show it, shared by all pages of this process that watch it."""

    def __init__(self, *, run: str, exchange: str, n: int, label: str = "") -> None:
        self.run, self.exchange, self.n, self.label = run, exchange, n, label
        self.parts: dict[tuple[str, str], LivePart] = {}
        self.changes: OrderedDict[int, Change] = OrderedDict()
        self.ahead: dict[int, Frame] = {}

    @classmethod
    def so_far(
        cls, output: ModelOutput | None, *, run: str, exchange: str, n: int, names: Sequence[str] = ()
    ) -> LiveAnswer:
        answer = cls(run=run, exchange=exchange, n=n, label=output.model if output else "")
        for piece in pieces_of(output, names) if output else ():
            answer._grow(piece)
        return answer

    def hear(self, frame: Frame) -> None:
        """Take a frame in as soon as all before it have come; a repetition is nothing."""
        if frame["n"] > self.n and len(self.ahead) < KEPT_CHANGES:
            self.ahead[frame["n"]] = frame
        while (following := self.ahead.pop(self.n + 1, None)) is not None:
            self.advance(following)

    def advance(self, frame: Frame) -> Change:
        """Take the next frame in."""
        self.n = frame["n"]
        change = Change(self.n, tuple(self._grow(piece) for piece in frame.get("pieces", ())))
        self.changes[self.n] = change
        while len(self.changes) > KEPT_CHANGES:
            self.changes.popitem(last=False)
        return change

    def between(self, seen: int, n: int) -> list[Change] | None:
        """The changes after frame `seen` up to `n`; None where one of them is not known any more."""
        numbers = range(seen + 1, n + 1)
        return [self.changes[number] for number in numbers] if all(x in self.changes for x in numbers) else None

    def _grow(self, piece: Piece) -> Grown:
        kind, place, text = piece[0], (piece[0], piece[1]), piece[2]
        is_new = place not in self.parts
        if is_new:
            index = len(self.parts)
            self.parts[place] = LivePart(index, _kind(kind), f"run-{self.run}-{index}")
        part = self.parts[place]
        if kind == "text":
            return self._grow_text(part, text, is_new=is_new)
        if kind == "call":
            part.name = part.name or piece[4]
            text = text[: max(0, SHOWN_ARGUMENTS - len(part.text))]
        part.text += text
        return Grown(part, is_new, text=text)

    def _grow_text(self, part: LivePart, text: str, *, is_new: bool) -> Grown:
        if part.can_take(text):
            part.text += text
            return Grown(part, is_new, text=text)
        split = split_blocks(part.text + text)
        blocks = tuple(part.rendered(block, number) for number, block in enumerate(split.finished, len(part.blocks)))
        part.blocks += blocks
        part.text = split.tail
        tail = part.tail
        part.is_open = tail.is_open
        return Grown(part, is_new, blocks=blocks, tail=tail)


def _kind(word: str) -> Kind:
    return "text" if word == "text" else "reasoning" if word == "reasoning" else "call"
