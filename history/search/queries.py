"""Parser of search queries. Every text is a valid query.

    words              all must occur            "two words"   side by side
    pay*               words with this prefix    支付           a run of characters is a phrase
    -word -"two words" must not occur            this OR that  either; binds closer than the space

Operators of a database are plain text here: words leave this module as letters and digits, and other characters are
dropped. A query needs each of its groups, any term of each, and none of the excluded terms.
"""

import re
from dataclasses import dataclass

from history.record.search_tokens import words_of

QUERY_CHARS = 2_000
QUERY_WORDS = 200
PREFIX_CHARS = 2  # a prefix of one letter matches half of all words and takes minutes

_CHUNK = re.compile(r'(?P<minus>-*)(?:"(?P<quoted>[^"]*)(?:"|$)(?P<star>\*?)|(?P<plain>[^\s"]+))')


@dataclass(frozen=True, slots=True)
class Term:
    """Words side by side; the last one may be a prefix."""

    words: tuple[str, ...]
    is_prefix: bool = False


Group = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Query:
    needed: tuple[Group, ...] = ()
    excluded: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that may occur in a matching text."""
        return tuple(dict.fromkeys(term for group in self.needed for term in group))

    @property
    def has_phrases(self) -> bool:
        return any(len(term.words) > 1 for term in (*self.terms, *self.excluded))


def parse_query(typed: str) -> Query:
    """Parse a query. A long one is cut."""
    groups: list[Group] = []
    excluded: list[Term] = []
    words, joins = 0, False
    for chunk in _CHUNK.finditer(typed[:QUERY_CHARS]):
        if chunk[0] == "OR":
            joins = bool(groups)
            continue
        term = _term(chunk)
        if term is None:
            continue
        words += len(term.words)
        if words > QUERY_WORDS:
            break
        if chunk["minus"]:
            excluded.append(term)
        elif joins:
            groups[-1] = (*groups[-1], term)
        else:
            groups.append((term,))
        joins = False
    return Query(tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(excluded)))


def _term(chunk: re.Match[str]) -> Term | None:
    typed = chunk["quoted"] if chunk["plain"] is None else chunk["plain"]
    words = tuple(words_of(typed))
    if not words:
        return None
    has_star = bool(chunk["star"]) or typed.rstrip().endswith("*")
    return Term(words, is_prefix=has_star and len(words[-1]) >= PREFIX_CHARS)
