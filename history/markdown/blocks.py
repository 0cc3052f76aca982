"""Markdown that is still being written, cut into blocks that can no longer change and a tail that can.

A block is finished when another one follows it, or when no line can be added to it; in doubt it is not. Until the
answer is rendered whole, a link or footnote whose definition is in another block is shown as typed.
"""

import re
from dataclasses import dataclass

from history.markdown.parser import MarkdownBlock, parse_blocks

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
    """The first line that is not empty, or the end."""
    return next((line for line in range(begin, end) if lines[line].strip(_SPACE)), max(begin, end))
