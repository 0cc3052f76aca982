"""The piece of a text that shows why it was found: pure, and never HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from history.search.queries import Term
from history.search.words import INSIDE, WORD_CHARS, Folded, fold, is_cjk

BEFORE, AFTER = 80, 160


@dataclass(frozen=True, slots=True)
class Snippet:
    """Stretches of text, each with whether it is a match, and whether more text stands before and after them."""

    pieces: tuple[tuple[str, bool], ...] = ()
    is_cut_before: bool = False
    is_cut_after: bool = False

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def beginning_of(text: str) -> Snippet:
    """For a hit that was found by its filters alone."""
    return _between(text, 0, _backed_to_space(text, AFTER), ())


def snippet_of(text: str, terms: tuple[Term, ...]) -> Snippet | None:
    """The surroundings of the first match, all matches in them marked; None where nothing matches."""
    folded = fold(text)
    pattern = _pattern(terms)
    match = pattern.search(folded.text)
    if match is None:
        return None
    start, end = folded.span(*match.span())
    start = _forward_to_space(text, start - BEFORE, start)
    end = max(end, _backed_to_space(text, start + BEFORE + AFTER))
    return _between(text, start, end, list(_matches(pattern, folded, start=match.start(), until=end)))


def _matches(pattern: re.Pattern[str], folded: Folded, *, start: int, until: int) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(folded.text, start):
        span = folded.span(*match.span())
        if span[1] > until:
            return
        yield span


def _between(text: str, start: int, end: int, matches: Sequence[tuple[int, int]]) -> Snippet:
    pieces: list[tuple[str, bool]] = []
    place = start
    for first, last in matches:
        if first < place:  # two words of one character, such as ½
            continue
        pieces += [(text[place:first], False), (text[first:last], True)]
        place = last
    pieces.append((text[place:end], False))
    return Snippet(tuple(piece for piece in pieces if piece[0]), start > 0, end < len(text))


def _forward_to_space(text: str, place: int, latest: int) -> int:
    """The beginning of the next word, so that a snippet does not begin inside one; not past `latest`."""
    if place <= 0:
        return 0
    space = re.compile(r"\s\b|\b").search(text, place, latest)
    return space.end() if space else latest


def _backed_to_space(text: str, place: int) -> int:
    if place >= len(text):
        return len(text)
    space = text.rfind(" ", max(0, place - 40), place)
    return space if space > 0 else place


@lru_cache(maxsize=256)
def _pattern(terms: tuple[Term, ...]) -> re.Pattern[str]:
    """Finds the terms in folded text, the longest first where several begin at one place."""
    ordered = sorted(terms, key=lambda term: len("".join(term.words)), reverse=True)
    return re.compile("|".join(map(_term_pattern, ordered)))


def _term_pattern(term: Term) -> str:
    words = [_word_pattern(word, is_cut=len(word) == WORD_CHARS) for word in term.words]
    if term.is_prefix and not is_cjk(term.words[-1][0]):
        words[-1] = _word_pattern(term.words[-1], is_cut=True)
    return " *".join(words)


def _word_pattern(word: str, *, is_cut: bool) -> str:
    if is_cjk(word[0]):
        return re.escape(word)
    rest = f"{INSIDE}*" if is_cut else f"(?!{INSIDE})"
    return f"(?<!{INSIDE}){re.escape(word)}{rest}"
