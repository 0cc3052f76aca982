"""The tokenizer of the search index and of queries, the same for every database.

A text is *folded*: compatibility forms (NFKC), case and accents are removed, all other characters become spaces. Every
Chinese, Japanese or Korean character is a word. Accents are the combining marks of Latin, Greek and Cyrillic, and the
vowel signs that Hebrew and Arabic leave out; the marks of other scripts (Devanagari, Thai) and of kana are letters.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

WORD_CHARS = 64  # longer words are cut, in the index and in a query alike

_ASCII = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128)) + b" " * 128
# Han with its iteration marks and zero, kana, bopomofo, Hangul syllables and letters.
_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U00016fe0-\U00018d8f\U0001aff0-\U0001b2ff\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_CJK}]|[^ {_CJK}]+")
_CJK_WORD = re.compile(f"[{_CJK}]")
_REST_OF_WORD = re.compile(f"[^ {_CJK}]*")
# Combining marks that are accents, or vowel signs that a writer may leave out, or mere decoration.
_ACCENT = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
_DROPPED = "\u00ad\u200d\u3099\u309a"  # soft hyphen, joiner, and voicing marks that no kana took
_UNEVEN = "\0"  # replaces in the folded text a character that does not fold to exactly one


@dataclass(frozen=True, slots=True)
class Folded:
    """Letters, digits and spaces; `origins` gives, for each character, its place in the original if that differs."""

    text: str
    origins: tuple[tuple[int, int], ...] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        if self.origins is None:
            return start, end
        return self.origins[start][0], self.origins[end - 1][1]


class Word(NamedTuple):
    text: str
    start: int
    end: int


def words_of(text: str) -> list[str]:
    """All words of a text, in order."""
    folded = fold(text).text
    words = folded.split() if folded.isascii() else _WORD.findall(folded)
    is_any_long = max(map(len, words), default=0) > WORD_CHARS
    return [word[:WORD_CHARS] for word in words] if is_any_long else words


def is_cjk(character: str) -> bool:
    return character >= "\u1100" and _CJK_WORD.match(character) is not None


def end_of_word(folded: str, place: int) -> int:
    """The end of the word that continues at `place` of a folded text, or `place` itself."""
    if folded[place : place + 1] in ("", " "):
        return place
    match = _REST_OF_WORD.match(folded, place)
    return match.end() if match else place


def places_of(text: str) -> list[Word]:
    """The same words, each with its place in the original text."""
    folded = fold(text)
    found = _WORD.finditer(folded.text)
    if folded.origins is None:
        return [Word(match[0][:WORD_CHARS], match.start(), match.end()) for match in found]
    return [Word(match[0][:WORD_CHARS], *folded.span(*match.span())) for match in found]


def fold(text: str) -> Folded:
    if text.isascii():
        return Folded(text.encode().translate(_ASCII).decode())
    if unicodedata.is_normalized("NFC", text):
        folded = text.translate(_EVEN)
        if _UNEVEN not in folded:
            return Folded(folded)
    return fold_unevenly(text)


def fold_unevenly(text: str) -> Folded:
    """Fold cluster by cluster (a character with its marks), with the place of each in the original."""
    folded: list[str] = []
    origins: list[tuple[int, int]] = []
    for start, end in _clusters(text):
        piece = _folded_cluster(text[start:end])
        folded.append(piece)
        origins.extend([(start, end)] * len(piece))
    return Folded("".join(folded), tuple(origins))


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for place in range(1, len(text)):
        if not _may_combine(text[place]):
            yield start, place
            start = place
    if text:
        yield start, len(text)


def _folded_cluster(cluster: str) -> str:
    if len(cluster) == 1:
        return _folded_character(cluster)
    return "".join(map(_folded_character, unicodedata.normalize("NFKC", cluster)))


@cache
def _may_combine(character: str) -> bool:
    """Whether normalisation may combine a character with the one before it."""
    first = unicodedata.normalize("NFKD", character)[0]
    return _is_later_jamo(first) or unicodedata.category(first).startswith("M")


class _Even(dict[int, str]):
    """A table for `str.translate`: the fold of characters that always fold to exactly one."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        folded, is_normal = _folded_character(character), unicodedata.is_normalized("NFKC", character)
        # Korean vowels and finals, and compatibility forms of marks, have to be seen with what is before them.
        is_alone = not _may_combine(character) or (is_normal and not _is_later_jamo(character))
        self[code] = even = folded if len(folded) == 1 and is_alone else _UNEVEN
        return even


@cache
def _folded_character(character: str) -> str:
    if character in _DROPPED or _ACCENT.match(character):
        return ""
    plain = _without_accents(unicodedata.normalize("NFKC", character))
    plain = _without_accents(plain.casefold())
    return "".join(one if _is_letter(one) else " " for one in plain)


def _without_accents(text: str) -> str:
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", text)))


def _is_later_jamo(character: str) -> bool:
    return "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"


def _is_letter(character: str) -> bool:
    if "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef":
        return False  # variation selectors are marks by name only
    return character.isalnum() or unicodedata.category(character) in ("Mn", "Mc")


_EVEN = _Even()
