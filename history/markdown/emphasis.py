"""Emphasis with `*`, `_` and `~`, including the rule that Chinese, Japanese and Korean texts need.

CommonMark decides by spaces and punctuation whether a delimiter opens or closes. Texts without spaces between words
break that rule: in `**注意：**这里` the closing `**` follows punctuation and precedes a letter, so it would stay a pair
of stars. A CJK character beside a delimiter therefore counts like a space there.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter

_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f"
    "\uff00-\uffef\U00020000-\U0003ffff]"
)


class Neighbour(NamedTuple):
    """What a character beside a run of delimiters counts as."""

    is_space: bool
    is_punctuation: bool
    is_cjk: bool


@lru_cache(maxsize=1024)
def classify(character: str) -> Neighbour:
    """Classify one neighbour; an empty string is the start or the end of the text."""
    if not character or character.isspace():
        return Neighbour(True, False, False)
    is_punctuation = unicodedata.category(character)[0] in "PS"
    return Neighbour(False, is_punctuation, bool(_CJK.match(character)))


def parse_emphasis(state: StateInline, silent: bool) -> bool:
    """Inline rule: put the delimiters of a run on the list that is paired later.

    A single `~` between letters or digits is a range (`3~5`) and no delimiter.
    """
    start, marker = state.pos, state.src[state.pos]
    if silent or marker not in "*_~":
        return False
    end = start + 1
    while end < state.posMax and state.src[end] == marker:
        end += 1
    length = end - start
    can_open, can_close = _flanking(
        classify(state.src[start - 1] if start else ""),
        classify(state.src[end] if end < state.posMax else ""),
        splits_words=marker == "*" or (length == 2 and marker == "~"),
    )
    state.pos = end
    if not (can_open or can_close) or (marker == "~" and length > 2):
        state.append_pending(state.src[start:end])
    elif marker == "~":
        _push(state, marker * length, length=0, can_open=can_open, can_close=can_close)
    else:
        for _ in range(length):
            _push(state, marker, length=length, can_open=can_open, can_close=can_close)
    return True


def _push(state: StateInline, content: str, *, length: int, can_open: bool, can_close: bool) -> None:
    state.push("text", "", 0).content = content
    place = len(state.tokens) - 1
    marker = ord(content[0])
    state.delimiters.append(Delimiter(marker, length, place, -1, can_open, can_close))


def _flanking(before: Neighbour, after: Neighbour, *, splits_words: bool) -> tuple[bool, bool]:
    opens = not after.is_space and (
        not after.is_punctuation or before.is_space or before.is_punctuation or before.is_cjk
    )
    closes = not before.is_space and (
        not before.is_punctuation or after.is_space or after.is_punctuation or after.is_cjk
    )
    if splits_words:
        return opens, closes
    return opens and (not closes or before.is_punctuation), closes and (not opens or after.is_punctuation)
