"""Snippets: the section of a text that shows why it was found. Pure, and never HTML."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, takewhile

from history.record.search_tokens import WORD_CHARS, Folded, end_of_word, fold, is_cjk
from history.search.queries import Term

BEFORE, AFTER = 80, 160
_BORDER = re.compile(r"\s\b|\b")


@dataclass(frozen=True, slots=True)
class Snippet:
    """Pieces of text with whether they match, and whether there is more text before and after."""

    pieces: tuple[tuple[str, bool], ...] = ()
    is_cut_before: bool = False
    is_cut_after: bool = False

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def beginning_of(text: str) -> Snippet:
    """For a hit without words."""
    return _between(text, 0, _backed_to_space(text, AFTER), ())


def snippet_of(text: str, terms: Sequence[Term]) -> Snippet | None:
    """The surroundings of the first match, with all matches marked. None without a match."""
    folded = fold(text)
    searches = [_occurrences(folded.text, term) for term in terms]
    firsts = [(found, search) for search in searches if (found := next(search, None))]
    if not firsts:
        return None
    start, end = folded.span(*min(found for found, _ in firsts))
    start = _forward_to_space(text, start - BEFORE, start)
    end = max(end, _backed_to_space(text, start + BEFORE + AFTER))
    matches = [span for found, search in firsts for span in _spans(folded, chain([found], search), until=end)]
    return _between(text, start, end, sorted(matches, key=lambda span: (span[0], -span[1])))


def _spans(folded: Folded, found: Iterable[tuple[int, int]], *, until: int) -> Iterator[tuple[int, int]]:
    return takewhile(lambda span: span[1] <= until, (folded.span(*one) for one in found))


def _between(text: str, start: int, end: int, matches: Sequence[tuple[int, int]]) -> Snippet:
    pieces: list[tuple[str, bool]] = []
    place = start
    for first, last in matches:
        if first < place:  # within the match before: one term begins another, or ½ is two words
            continue
        pieces += [(text[place:first], False), (text[first:last], True)]
        place = last
    pieces.append((text[place:end], False))
    return Snippet(tuple(piece for piece in pieces if piece[0]), start > 0, end < len(text))


def _forward_to_space(text: str, place: int, latest: int) -> int:
    if place <= 0:
        return 0
    border = _BORDER.search(text, place, latest)
    return border.end() if border else latest


def _backed_to_space(text: str, place: int) -> int:
    if place >= len(text):
        return len(text)
    space = text.rfind(" ", max(0, place - 40), place)
    return space if space > 0 else place


# Not with a regular expression: one that finds ends of words in every script takes milliseconds to compile.
def _occurrences(folded: str, term: Term) -> Iterator[tuple[int, int]]:
    if pattern := _cjk_pattern(term):
        yield from (match.span() for match in pattern.finditer(folded))
        return
    place = 0
    while (place := folded.find(term.words[0], place)) >= 0:
        end = _end_of_term(folded, term, place)
        if end is not None:
            yield place, end
        place += 1


@lru_cache(maxsize=256)
def _cjk_pattern(term: Term) -> re.Pattern[str] | None:
    """If each character is a word, no word ends inside another, so a simple pattern does."""
    return re.compile(" *".join(term.words)) if all(map(is_cjk, term.words)) else None


def _end_of_term(folded: str, term: Term, place: int) -> int | None:
    if place and _continues(folded, place - 1) and not is_cjk(folded[place]):
        return None
    for number, word in enumerate(term.words, 1):
        while folded[place : place + 1] == " ":
            place += 1
        if not folded.startswith(word, place):
            return None
        place += len(word)
        if not is_cjk(word[0]) and _continues(folded, place):
            if len(word) < WORD_CHARS and not (term.is_prefix and number == len(term.words)):
                return None
            place = end_of_word(folded, place)
    return place


def _continues(folded: str, place: int) -> bool:
    """Whether a word continues at this place, without its length: some are a megabyte."""
    return folded[place : place + 1] not in ("", " ") and not is_cjk(folded[place])
