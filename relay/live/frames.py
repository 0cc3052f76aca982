"""An answer on its way, as whoever watches it sees it: numbered frames in, what changed on the page out.

A frame is a small JSON object. Its number `n` counts up within its run, so a page that has seen frame 41 knows that 42
is next, that 40 is a repetition and that 44 means something was lost. Frames come through the channel layer; the same
state can be taken up at any time from the answer so far, which names the frame that it includes.

Text is shown by finished blocks: a block that can no longer change is rendered once, and only the open end again. Plain
words in the middle of a line change nothing before them, so they are simply put behind it: most frames render nothing.
A long open end (a list, a table) is rendered again only when it has grown by a good part of itself. So the cost of an
answer grows with its length, not with the square of it. All but short texts are rendered in a thread, so that an answer
of any length never holds the event loop for more than a moment.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.utils.safestring import SafeString

from history.answers.assembly import NO_ARGUMENTS
from history.answers.events import Event, ReasoningPiece, TextPiece, ToolCallPiece
from history.entries import ModelOutput, Part, Reasoning, Text, ToolRequest
from history.markdown import render, split_blocks
from history.markdown.code import MAX_CHARS as MAX_HIGHLIGHTED_CHARS
from relay.live.frame_html import Tail, more_words, new_part, open_end, prose

Kind = Literal["text", "reasoning", "call"]
Piece = list[str]  # kind, part, text; of a call also its id and the tool's name
Frame = dict[str, Any]

KEPT_CHANGES = 256
SHOWN_ARGUMENTS = 4_000
# At the start of a line a few characters decide what it is: a list, a heading, a quotation.
LINE_START = 12
# Rendering takes a few microseconds for a character: longer texts are rendered in a thread.
MAX_CHARS_ON_LOOP = 1_000
# An open end that is longer than this is rendered again when it has grown by an eighth.
LONG_TAIL = 4_000
# Code that is still being written is highlighted again when it has grown by a quarter, as far as it is highlighted.
HIGHLIGHT_STEP = 200

# What may change how the text before it looks; a line break always does.
_MEANING = re.compile(r"[*_`~\[\]<>$|\\&^\r\n\t]")
# A character at the end of a text whose meaning depends on the next one.
_UNDECIDED = frozenset("*_~$`\\])")
# The beginning of an address or an entity, which more letters continue.
_ADDRESS = re.compile(r"://|www\.|@|&")


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


@dataclass(frozen=True, slots=True)
class RenderedText:
    """A text that was split and rendered: its finished blocks as HTML, the source of its open end, and that as HTML."""

    blocks: tuple[str, ...]
    text: str
    tail: Tail
    open_fence: str = ""


def render_text(text: str, *, index: int, number: int) -> RenderedText:
    """Split and render the open end of a part; `number` blocks of it are finished already."""
    split = split_blocks(text)
    sources = [*split.finished, split.tail] if split.tail else split.finished
    html = [render_block(block, index=index, number=place) for place, block in enumerate(sources, number)]
    last = html.pop() if split.tail else ""
    tail = Tail.of(split.tail, last, is_code=bool(split.open_fence)) if last else Tail()
    return RenderedText(tuple(html), split.tail, tail, split.open_fence)


def render_block(block: str, *, index: int, number: int) -> str:
    return render(block, prefix=f"live-{index}-{number}-")


@dataclass(slots=True)
class LivePart:
    """One part on the page, in `element`. `blocks` are finished, as HTML; `text` is the open end, as it was written.

    `tail` shows the first `shown` characters of `text`; `added` are words that the page has put behind it since.
    """

    index: int
    kind: Kind
    element: str = ""
    name: str = ""
    blocks: list[str] = field(default_factory=list)
    text: str = ""
    tail: Tail = field(default_factory=Tail)
    shown: int = 0
    added: str = ""
    open_fence: str = ""

    @property
    def prose(self) -> SafeString:
        return prose(self.element, self.blocks, self.tail, self.added)

    def can_take(self, more: str) -> bool:
        """Whether this is only more of the same, which can be put behind the open end without rendering it again."""
        if not self.tail.is_open or self.shown + len(self.added) < len(self.text):
            return False
        line = self.text[self.text.rfind("\n") + 1 :]
        return self._can_take_code(line, more) if self.open_fence else self._can_take_words(line, more)

    def _can_take_code(self, line: str, more: str) -> bool:
        needs_highlighting = self.shown <= MAX_HIGHLIGHTED_CHARS and len(self.added) + len(more) > max(
            HIGHLIGHT_STEP, self.shown // 4
        )
        mark = self.open_fence[0]
        return mark not in line and mark not in more and "\r" not in more and not needs_highlighting

    def _can_take_words(self, line: str, more: str) -> bool:
        if len(line) < LINE_START or _MEANING.search(more) or line[-1] in _UNDECIDED:
            return False
        ends_a_link = ")" in more and "](" in line
        last_word = line[line.rfind(" ") + 1 :]
        return not ends_a_link and not _ADDRESS.search(last_word + more)

    def can_wait(self, more: str) -> bool:
        """Whether a long open end has not grown enough to be rendered again."""
        grown = len(self.text) + len(more) - self.shown
        return self.shown > LONG_TAIL and grown < self.shown // 8

    def put(self, rendered: RenderedText) -> None:
        self.blocks += rendered.blocks
        self.text, self.tail, self.open_fence = rendered.text, rendered.tail, rendered.open_fence
        self.shown, self.added = len(self.text), ""


@dataclass(frozen=True, slots=True)
class PartUpdate:
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
    grown: tuple[PartUpdate, ...] = ()
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
        self.order = asyncio.Lock()

    @classmethod
    async def so_far(
        cls, output: ModelOutput | None, *, run: str, exchange: str, n: int, names: Sequence[str] = (), label: str = ""
    ) -> LiveAnswer:
        answer = cls(run=run, exchange=exchange, n=n, label=label)
        for piece in pieces_of(output, names) if output else ():
            await answer._grow(piece)
        return answer

    async def hear(self, frame: Frame) -> None:
        """Take a frame in as soon as all before it have come; a repetition is nothing."""
        async with self.order:
            if frame["n"] > self.n and len(self.ahead) < KEPT_CHANGES:
                self.ahead[frame["n"]] = frame
            while (following := self.ahead.pop(self.n + 1, None)) is not None:
                await self._advance(following)

    async def advance(self, frame: Frame) -> Change:
        """Take the next frame in."""
        async with self.order:
            return await self._advance(frame)

    async def _advance(self, frame: Frame) -> Change:
        # The frame counts when all of it is there: a page that looks meanwhile sees the state before it.
        grown = [await self._grow(piece) for piece in frame.get("pieces", ())]
        self.n = frame["n"]
        change = self.changes[self.n] = Change(self.n, tuple(grown))
        while len(self.changes) > KEPT_CHANGES:
            self.changes.popitem(last=False)
        return change

    def between(self, seen: int, n: int) -> list[Change] | None:
        """The changes after frame `seen` up to `n`; None where one of them is not known any more."""
        numbers = range(seen + 1, n + 1)
        return [self.changes[number] for number in numbers] if all(x in self.changes for x in numbers) else None

    async def _grow(self, piece: Piece) -> PartUpdate:
        kind, place, text = piece[0], (piece[0], piece[1]), piece[2]
        is_new = place not in self.parts
        if is_new:
            index = len(self.parts)
            self.parts[place] = LivePart(index, _kind(kind), f"run-{self.run}-{index}")
        part = self.parts[place]
        if kind == "text":
            return await self._grow_text(part, text, is_new=is_new)
        if kind == "call":
            part.name = part.name or piece[4]
            text = text[: max(0, SHOWN_ARGUMENTS - len(part.text))]
        part.text += text
        return PartUpdate(part, is_new, text=text)

    async def _grow_text(self, part: LivePart, text: str, *, is_new: bool) -> PartUpdate:
        can_take = part.can_take(text)
        if can_take or part.can_wait(text):
            part.text += text
            # A page that comes now gets them from `added`. What waits comes with the next rendering.
            part.added += text if can_take else ""
            return PartUpdate(part, is_new, text=text if can_take else "")
        rendered = await _render(part.text + text, index=part.index, number=len(part.blocks))
        part.put(rendered)
        return PartUpdate(part, is_new, blocks=rendered.blocks, tail=rendered.tail)


async def _render(text: str, *, index: int, number: int) -> RenderedText:
    if len(text) <= MAX_CHARS_ON_LOOP:
        return render_text(text, index=index, number=number)
    return await asyncio.to_thread(render_text, text, index=index, number=number)


def _kind(word: str) -> Kind:
    return "text" if word == "text" else "reasoning" if word == "reasoning" else "call"
