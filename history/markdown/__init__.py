"""Markdown to safe HTML: GitHub Flavored Markdown, footnotes and formulas.

HTML in a text is shown as typed, except for four harmless tags, and the result passes an allow-list. Blocks are cached,
so one that was rendered while it was streamed costs nothing when its page is loaded.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from django.utils.safestring import SafeString, mark_safe

from history.db.packing import clean
from history.markdown.html import HtmlWriter, plain_html, sanitize
from history.markdown.parser import Document, MarkdownBlock, parse_blocks, parse_words

__all__ = ["MAX_CHARS", "render", "split_blocks"]

MAX_CHARS = 1_000_000  # the rest of a longer text is shown as typed


class HtmlCache:
    def __init__(self, *, max_chars: int) -> None:
        self.max_chars = max_chars
        self._entries: OrderedDict[Hashable, str] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> str | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: Hashable, html: str) -> None:
        with self._lock:
            self._chars += len(html) - len(self._entries.pop(key, ""))
            self._entries[key] = html
            while self._chars > self.max_chars:
                self._chars -= len(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._chars = 0


cache = HtmlCache(max_chars=4_000_000)


def render(text: str, *, prefix: str = "") -> SafeString:
    """Return the text as HTML without scripts, styles, foreign images or event handlers.

    Ids of footnotes begin with the prefix; a page that shows several texts gives each its own.
    """
    text = normalize(clean(text))
    rest = text[MAX_CHARS:]
    html = prose_html(text[:MAX_CHARS])
    if html is None:
        html = _render(text[:MAX_CHARS], prefix)
    # It was sanitised, or escaped whole.
    return mark_safe(f"{html}\n{plain_html(rest)}" if rest else html)  # noqa: S308


def _render(text: str, prefix: str) -> str:
    html = cache.get((text, prefix))
    if html is None:
        document = parse_blocks(text, prefix=prefix)
        lines = text.split("\n")
        blocks = (block for block in document.blocks if block.kind != "footnote")
        parts = [_render_block(block, lines, document) for block in blocks]
        if document.footnotes.bodies:
            parts.append(_render_notes(document))
        html = "\n".join(part for part in parts if part)
        cache.put((text, prefix), html)
    return html


def _render_block(block: MarkdownBlock, lines: list[str], document: Document) -> str:
    """One block. The cache key is its own text, so blocks of a text with definitions are not cached."""
    source, notes = "\n".join(lines[block.start : block.end]), document.footnotes
    key = source.rstrip("\n") if block.kind.endswith("list") else source
    html = None if document.has_definitions else cache.get(key)
    if html is None:
        parse_words(block.tokens, document.env)
        html = HtmlWriter(notes).write(block.tokens)
        html = sanitize(html, anchors=notes.anchors if notes.bodies else None).rstrip("\n")
        if not document.has_definitions:
            cache.put(key, html)
    return html


def _render_notes(document: Document) -> str:
    """The notes in the order of their references; those in notes count too, and the others follow."""
    notes, writer = document.footnotes, HtmlWriter(document.footnotes)
    unreferenced = (label for label in notes.bodies if label not in notes.numbers)
    items: list[str] = []
    while len(items) < len(notes.bodies):
        if len(items) == len(notes.labels):
            notes.number_of(next(unreferenced))
        label = notes.labels[len(items)]
        for body in notes.bodies[label]:
            parse_words(body, document.env)
        items.append(writer.write_note(label, notes.bodies[label]))
    return sanitize(f'<div class="footnotes"><ol>\n{"".join(items)}</ol></div>', anchors=notes.anchors)


# Marks, controls, and spaces that are stripped in some places and kept in others.
_OTHER = (
    r"\\`*_\[\]<>&$|~^#@\x00-\x1f\x7f-\xa0\xad\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff0-\uffff"
)
_WORDS = rf"[^{_OTHER}]"
_STRONG = rf"\*\*(?=\w){_WORDS}++(?<=\w)\*\*(?!\*)"
_CODE = r"`(?=[!-~])(?![*_ ])[\w .,:;=+/()*-]{1,80}(?<![ *_])`(?!`)"
_LINE = rf"(?=[^\W\d_]|\*\*\w|`)(?:{_WORDS}++|(?<!\*){_STRONG}|(?<!`){_CODE})++"
_PARAGRAPH = re.compile(rf"{_LINE}(?:(?<!  )\n{_LINE})*+")
_LIST = re.compile(rf"- {_LINE}(?:(?<!  )\n- {_LINE})*+")
_END_SPACE = re.compile(r" +$", re.MULTILINE)
_GAP = re.compile(r"\n\n+")
_ADDRESS = re.compile(r"://|www\.")
_MARKED = re.compile(r"`([^`]++)`|\*\*([^*]++)\*\*")


def prose_html(text: str) -> str | None:
    """Return the same HTML as the parser's; None for a text that is more than plain prose."""
    if _ADDRESS.search(text):
        return None
    blocks: list[str] = []
    for block in _GAP.split(text.strip("\n")):
        if _PARAGRAPH.fullmatch(block):
            words = _MARKED.sub(_mark_html, _END_SPACE.sub("", block))
            blocks.append(f"<p>{words}</p>".replace("\n", "<br>\n"))
        elif _LIST.fullmatch(block) and not (blocks and blocks[-1].startswith("<ul>")):
            words = _MARKED.sub(_mark_html, _END_SPACE.sub("", block[2:]))
            blocks.append(f"<ul>\n<li>{words}</li>\n</ul>".replace("\n- ", "</li>\n<li>"))
        else:
            return None
    return "\n".join(blocks)


def _mark_html(mark: re.Match[str]) -> str:
    return f"<code>{mark[1]}</code>" if mark[1] else f"<strong>{mark[2]}</strong>"


_BREAK = re.compile(r"\r\n|\r(?!\Z)")
_INVISIBLE = str.maketrans(
    # Some patterns take these for spaces or line breaks and others for text; NUL cannot be shown.
    {"\0": "\ufffd", "\x02": None, "\x03": None, **dict.fromkeys("\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029", " ")}
)
_SPACE = " \t"
# The start of a line that begins a paragraph or continues one, no matter what follows.
_TEXT = re.compile(r" {0,3}[^\W\d_]")


@dataclass(frozen=True)
class Split:
    """`open_fence` is the fence of a code block that the tail consists of, which has not ended yet."""

    finished: tuple[str, ...]
    tail: str
    open_fence: str = ""


def normalize(text: str) -> str:
    """One kind of line break, no invisible characters. A last `\\r` may be half of a line break: it stays."""
    return _BREAK.sub("\n", text).translate(_INVISIBLE)


def split_blocks(text: str) -> Split:
    """Cut a text that is still being written into blocks that can no longer change and a tail that can.

    A block is finished when another one follows it, or when no line can be added to it; in doubt it is not. Until the
    answer is rendered whole, a link or footnote whose definition is in another block is shown as typed.
    """
    text = normalize(text)
    lines = text.split("\n")
    complete = len(lines) - 1  # the last line may go on
    is_certain = bool(_TEXT.match(lines[-1]))
    known = text if is_certain else text[: len(text) - len(lines[-1])]
    blocks = parse_blocks(known, is_partial=True).blocks
    last = blocks[-1] if blocks else None
    if last and (is_certain or not _is_closed(last, lines[:complete])):
        blocks.pop()
        # Without an end, the lines of a formula may continue the block before it.
        if last.kind == "math_block" and blocks and not _is_closed(blocks[-1], lines[: last.start]):
            blocks.pop()
    finished: list[str] = []
    begin = 0
    for block in blocks:
        end = block.end
        while end > begin and not lines[end - 1].strip(_SPACE):
            end -= 1
        finished.append("\n".join(lines[_first_line(lines, begin, end) : end]))
        begin = block.end
    begin = _first_line(lines, begin, complete)
    is_open_fence = last is not None and last.kind == "fence" and last not in blocks
    open_fence = last.tokens[0].markup if last and is_open_fence else ""
    return Split(tuple(finished), "\n".join(lines[begin:]), open_fence)


def _is_closed(block: MarkdownBlock, lines: list[str]) -> bool:
    """Whether no more lines can be added to the last block of these complete lines."""
    match block.kind:
        case "heading" | "hr":
            return True
        case "paragraph" | "table":
            return block.end < len(lines)
        case "math_block":
            return not block.tokens[0].info
        case "fence":
            has_end = block.end - block.start > 1 and _ends_fence(lines[block.end - 1], block.tokens[0].markup)
            return has_end or block.end < len(lines)
    return False


def _ends_fence(line: str, fence: str) -> bool:
    mark, is_code = line.strip(_SPACE), line.expandtabs(4).startswith("    ")
    return not is_code and mark.startswith(fence) and not mark.strip(fence[0])


def _first_line(lines: list[str], begin: int, end: int) -> int:
    return next((line for line in range(begin, end) if lines[line].strip(_SPACE)), max(begin, end))
