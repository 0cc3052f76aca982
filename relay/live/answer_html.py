"""HTML of an answer while it is written, shared by all pages of this process that show it.

Text is shown by finished blocks: a block that can no longer change is rendered once, and only the open end again. Words
in the middle of a line do not change what is before them, so they are appended without rendering. A long open end (a
list, a table) is rendered again only when it has grown by an eighth. So the cost of an answer grows with its length,
not with the square of it. Long texts are rendered in a thread, so that they do not block the event loop.

Snippets that change with every frame are strings instead of templates: with hundreds of answers at once, templates take
most of the CPU time. Blocks and open ends come from the Markdown renderer and are safe, ids of elements are ours; only
plain text is escaped.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID
from weakref import WeakValueDictionary

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from history.markdown import Split, render, split_blocks
from history.markdown.html import MAX_CODE_CHARS
from relay.live.frames import Frame, FrameCursor, Piece, RunSnapshot

# The HTML ends with a paragraph, a list item (also nested) or a code block.
_OPEN_END = re.compile(r"(?:\n?</code></pre></div>|</(?:p|li)>(?:\s*</(?:p|li|ul|ol|blockquote|div)>)*)\s*$")

MAX_CHANGES = 256
MAX_ARGUMENT_CHARS = 4_000
LINE_START = 12  # at the start of a line a few characters decide what it is: a list, a heading, a quotation
MAX_CHARS_ON_LOOP = 1_000  # rendering takes a few microseconds for a character: longer texts are rendered in a thread
LONG_TAIL = 4_000  # an open end that is longer than this is rendered again when it has grown by an eighth
# Code that is still being written is highlighted again when it has grown by a quarter, as far as it is highlighted.
HIGHLIGHT_STEP = 200

_MEANING = re.compile(r"[*_`~\[\]<>$|\\&^\r\n\t]")  # characters that may change how the text before them is rendered
_UNDECIDED = frozenset("*_~$`\\])")  # a character at the end of a text whose meaning depends on the next one
_ADDRESS = re.compile(r"://|www\.|@|&")  # the beginning of an address or an entity, which more letters continue


@dataclass(frozen=True, slots=True)
class Tail:
    """HTML of the open end. If it `is_open`, text can be inserted between `before` and `after`, after `space`."""

    before: str = ""
    space: str = ""
    after: str = ""
    is_open: bool = False

    @classmethod
    def of(cls, text: str, html: str, *, is_code: bool = False) -> "Tail":
        end = _OPEN_END.search(html, max(0, len(html) - 500))
        if end is None or is_code != html.endswith("</code></pre></div>"):
            return cls(html)
        before, after = html[: end.start()], html[end.start() :]
        if is_code:
            return cls(before, "\n" if text.endswith("\n") and after[0] == "\n" else "", after.lstrip("\n"), True)
        space = " " if text[-1:].isspace() and not before[-1:].isspace() else ""
        return cls(before, space, after, True)

    def html(self, element: str, added: str = "") -> SafeString:
        """`added` is the text that was appended since."""
        end = f'<span id="{element}-end">{self.space}{escape(added)}</span>{self.after}' if self.is_open else ""
        return mark_safe(f'<div class="tail" id="{element}-tail">{self.before}{end}</div>')  # noqa: S308  see above


def text_part_html(element: str, blocks: Iterable[str], tail: Tail, added: str = "") -> SafeString:
    inner = f'<div class="blocks" id="{element}-blocks">{"".join(blocks)}</div>\n{tail.html(element, added)}'
    return mark_safe(f'<div class="prose" id="{element}">{inner}</div>')  # noqa: S308  see above


def render_text(text: str, *, index: int, number: int) -> tuple[Split, tuple[str, ...], Tail]:
    """Split the open end of a part, and render its finished blocks and its new open end.

    `number` blocks of the part are finished already.
    """
    split = split_blocks(text)
    sources = [*split.finished, split.tail] if split.tail else split.finished
    html = [render_block(block, index=index, number=place) for place, block in enumerate(sources, number)]
    last = html.pop() if split.tail else ""
    tail = Tail.of(split.tail, last, is_code=bool(split.open_fence)) if last else Tail()
    return split, tuple(html), tail


def render_block(block: str, *, index: int, number: int) -> str:
    return render(block, prefix=f"live-{index}-{number}-")


@dataclass(slots=True)
class LivePart:
    """One part on the page, in `element`. `blocks` is the HTML of finished blocks, `text` the source of the open end.

    `tail` is the HTML of the first `shown` characters of `text`; `added` was appended to it since.
    """

    index: int
    kind: str  # text, reasoning or call
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
        return text_part_html(self.element, self.blocks, self.tail, self.added)

    def can_append(self, more: str) -> bool:
        """Whether this text can be appended to the open end without rendering it again."""
        if not self.tail.is_open or self.shown + len(self.added) < len(self.text):
            return False
        line = self.text[self.text.rfind("\n") + 1 :]
        return self._can_append_code(line, more) if self.open_fence else self._can_append_words(line, more)

    def _can_append_code(self, line: str, more: str) -> bool:
        needs_highlighting = self.shown <= MAX_CODE_CHARS and len(self.added) + len(more) > max(
            HIGHLIGHT_STEP, self.shown // 4
        )
        mark = self.open_fence[0]
        return mark not in line and mark not in more and "\r" not in more and not needs_highlighting

    def _can_append_words(self, line: str, more: str) -> bool:
        if len(line) < LINE_START or _MEANING.search(more) or line[-1] in _UNDECIDED:
            return False
        ends_a_link = ")" in more and "](" in line
        last_word = line[line.rfind(" ") + 1 :]
        return not ends_a_link and not _ADDRESS.search(last_word + more)

    def can_wait(self, more: str) -> bool:
        """Whether a long open end has not grown enough to be rendered again."""
        grown = len(self.text) + len(more) - self.shown
        return self.shown > LONG_TAIL and grown < self.shown // 8


@dataclass(frozen=True, slots=True)
class PartUpdate:
    """What one frame added to a part: finished blocks and a new open end, or text that is appended to it."""

    part: LivePart
    is_new: bool
    blocks: tuple[str, ...] = ()
    tail: Tail | None = None
    text: str = ""

    @property
    def prose(self) -> SafeString:
        return text_part_html(self.part.element, self.blocks, self.tail or Tail())

    @property
    def is_text(self) -> bool:
        """Text is shown without a heading."""
        return self.part.kind == "text"

    @property
    def html(self) -> str:
        """HTML of a new text part, or of a change of a part that is on the page already."""
        element, tail = self.part.element, self.tail
        if self.is_new:
            parts = f"{element.rpartition('-')[0]}-parts"
            return f'<div hx-swap-oob="beforeend:#{parts}">{self.prose}</div>'
        if tail is None:
            text = f'<span hx-swap-oob="beforeend:#{element}-end">{escape(self.text)}</span>'
            return text if self.text else ""
        finished = "".join(self.blocks)
        added = f'<div hx-swap-oob="beforeend:#{element}-blocks">{finished}</div>' if finished else ""
        return f"{added}\n{tail.html(element)}"


@dataclass(slots=True)
class Change:
    """The updates of one frame. `html` is a cache by language: one rendering serves every page."""

    n: int
    updates: tuple[PartUpdate, ...] = ()
    html: dict[str, str] = field(default_factory=dict)

    @property
    def is_translated(self) -> bool:
        """A new part that is not text has a heading in the language of the page."""
        return any(update.is_new and not update.is_text for update in self.updates)


class AnswerCursor(FrameCursor):
    """What this process has rendered of the answer of one exchange: frames up to `n`, for all pages that show it."""

    def __init__(self, run: UUID, *, exchange: str, n: int, label: str = "") -> None:
        super().__init__(run, n=n)
        self.exchange, self.label = exchange, label
        self.parts: dict[tuple[str, str], LivePart] = {}
        self.changes: OrderedDict[int, Change] = OrderedDict()
        self.lock = asyncio.Lock()

    @classmethod
    async def from_snapshot(cls, snapshot: RunSnapshot, *, run: UUID) -> "AnswerCursor":
        answer = cls(run, exchange=snapshot.exchange, n=snapshot.n or 0, label=snapshot.model)
        for piece in snapshot.pieces:
            await answer._add_piece(piece)
        return answer

    async def apply(self, frame: Frame) -> Change | None:
        """The change of a frame, made by the first page that has it. None: it is too old, or one before it is missing.

        The frame counts when all of it is rendered: a page that looks meanwhile waits for `lock`.
        """
        async with self.lock:
            if frame["n"] != self.n + 1:
                return self.changes.get(frame["n"])
            updates = [await self._add_piece(piece) for piece in frame.get("pieces", ())]
            self.n = frame["n"]
            change = self.changes[self.n] = Change(self.n, tuple(updates))
            while len(self.changes) > MAX_CHANGES:
                self.changes.popitem(last=False)
            return change

    async def _add_piece(self, piece: Piece) -> PartUpdate:
        kind, name, text = piece[:3]
        if is_new := (kind, name) not in self.parts:
            index = len(self.parts)
            self.parts[kind, name] = LivePart(index, kind, f"run-{self.run}-{index}")
        part = self.parts[kind, name]
        if kind == "text":
            return await self._add_text(part, text, is_new=is_new)
        if kind == "call":
            part.name = part.name or piece[4]
            text = text[: max(0, MAX_ARGUMENT_CHARS - len(part.text))]
        part.text += text
        return PartUpdate(part, is_new, text=text)

    async def _add_text(self, part: LivePart, text: str, *, is_new: bool) -> PartUpdate:
        can_append = part.can_append(text)
        if can_append or part.can_wait(text):
            part.text += text
            # A page that opens now gets appended text from `added`. Text that waits comes with the next rendering.
            part.added += text if can_append else ""
            return PartUpdate(part, is_new, text=text if can_append else "")
        render = partial(render_text, part.text + text, index=part.index, number=len(part.blocks))
        is_short = len(part.text) + len(text) <= MAX_CHARS_ON_LOOP
        split, blocks, tail = render() if is_short else await asyncio.to_thread(render)
        part.blocks += blocks
        part.text, part.tail, part.open_fence = split.tail, tail, split.open_fence
        part.shown, part.added = len(part.text), ""
        return PartUpdate(part, is_new, blocks=blocks, tail=tail)


# Rendered answers by run, as long as a page shows them. All pages of a process use one event loop.
_answers: WeakValueDictionary[UUID, AnswerCursor] = WeakValueDictionary()


class PageCursor(FrameCursor):
    """What a page shows of a run: an answer, if one is being written."""

    answer: AnswerCursor | None = None

    @property
    def element(self) -> str:
        """The id of the live answer on the page."""
        return f"run-{self.run}" if self.answer is not None else ""

    def open_answer(self, frame: Frame) -> AnswerCursor:
        answer = _answers.get(self.run)
        if answer is None or answer.exchange != frame["exchange"]:
            answer = AnswerCursor(self.run, exchange=frame["exchange"], n=frame["n"], label=frame["model"])
        return answer

    async def resume_answer(self, snapshot: RunSnapshot) -> AnswerCursor:
        """The answer of a snapshot, with the frames that wait here."""
        answer = _answers.get(self.run)
        if answer is None or answer.exchange != snapshot.exchange or answer.n < (snapshot.n or 0):
            answer = await AnswerCursor.from_snapshot(snapshot, run=self.run)
        self.skip_to(answer.n)
        for frame in self.pop_next():
            await answer.apply(frame)
        return answer

    def show(self, answer: AnswerCursor) -> None:
        """The page is sent the whole answer; call it with the lock of the answer."""
        _answers[self.run] = answer
        self.answer = answer
        self.skip_to(answer.n)

    async def receive_changes(self, frame: Frame) -> list[Change] | None:
        """What the page has to change for this frame. Nothing for a repetition; None where something was missed."""
        answer = self.answer
        if answer is None or answer.exchange != frame["exchange"]:
            return None
        if frame["n"] <= self.n:
            return []
        changes = [await answer.apply(one) for one in self.receive(frame)]
        known = [change for change in changes if change is not None]
        return known if known and len(known) == len(changes) else None
