"""How a line falls into words: at spaces, except between quotes.

People write apostrophes, and keyboards make typographic and Chinese quotes of plain ones. So a quote counts only where
it begins a word (or a value, behind `name=`) and one that closes it ends a word; any other is a character like the
rest, and no text is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_CLOSING = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’", "「": "」", "『": "』", "«": "»", "＂": "＂"}
_NAME = re.compile(r"([A-Za-z_]\w*)[=＝]")
_WORD = re.compile(r"\S+")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """`text` without its quotes; `raw` as it was typed. `name` is what stood before an equals sign, if anything."""

    text: str
    raw: str
    name: str = ""
    is_quoted: bool = False


def words_of(line: str) -> Iterator[Word]:
    place = _end(_SPACE, line, 0)
    unclosed: set[str] = set()
    while place < len(line):
        word = _word_at(line, place, unclosed)
        yield word
        place = _end(_SPACE, line, place + len(word.raw))


def _word_at(line: str, place: int, unclosed: set[str]) -> Word:
    named = _NAME.match(line, place)
    start = named.end() if named else place
    name = named[1] if named else ""
    if (end := _end_of_quoted(line, start, unclosed)) is not None:
        text = line[start + 1 : end - 1].replace('\\"', '"')
        return Word(text=text, raw=line[place:end], name=name, is_quoted=True)
    end = _end(_WORD, line, place)
    return Word(text=line[start:end], raw=line[place:end], name=name)


def _end_of_quoted(line: str, start: int, unclosed: set[str]) -> int | None:
    """Where a quoted stretch that begins here ends; None where none begins.

    `unclosed` remembers quotes that nothing closes any more, so that a line is not searched again and again.
    """
    closing = _CLOSING.get(line[start : start + 1])
    if closing is None or closing in unclosed:
        return None
    end = line.find(closing, start + 1)
    while end >= 0:
        if line[end - 1] != "\\" and (end + 1 == len(line) or line[end + 1].isspace()):
            return end + 1
        end = line.find(closing, end + 1)
    unclosed.add(closing)
    return None


def _end(pattern: re.Pattern[str], line: str, place: int) -> int:
    match = pattern.match(line, place)
    return match.end() if match else place
