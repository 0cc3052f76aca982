"""What can be wrong with a summary, found without a model: it says nothing, it is longer, it forgets, it gives orders.

An identifier that a person wrote must not be lost, so some are asked for (`required_identifiers`). A tool's output must
not come out as an order, so a summary that repeats one of the known phrases, which no person had said, is refused, and
so is one that imitates the marks around messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from history.context.compression.planning import SummarySpan
from history.context.messages import SUMMARY_ENDS, to_context
from history.context.tokens import estimate_entry
from history.entries import ModelInput, Node, Summary, nothing
from history.text.lazy import gettext_noop as _

# So many identifiers are asked for, of at most so many characters.
MOST_IDENTIFIERS = 12
MOST_CHARS = 120
LEAST_WORDS = 5


class ProblemCode(StrEnum):
    """Stable names of why no summary was written."""

    EMPTY = "empty"
    GROWS = "grows"
    LOSES = "loses"
    ORDERS = "orders"
    MARKS = "marks"
    FAILED = "failed"


SENTENCES: dict[ProblemCode, str] = {
    ProblemCode.EMPTY: _("the summary says nothing"),
    ProblemCode.GROWS: _("the summary is longer than what it stands for"),
    ProblemCode.LOSES: _("the summary lost %(identifier)s"),
    ProblemCode.ORDERS: _("the summary passes on an order that no person gave: “%(phrase)s”"),
    ProblemCode.MARKS: _("the summary imitates the marks around messages: “%(phrase)s”"),
    ProblemCode.FAILED: _("the model gave no summary"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    code: ProblemCode
    values: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def text(self) -> str:
        return SENTENCES[self.code] % dict(self.values)


def find_problem(summary: str, stretch: SummarySpan, *, required: Sequence[str]) -> Problem | None:
    """Why this must not stand for that; None: it may."""
    if _says_nothing(summary):
        return Problem(code=ProblemCode.EMPTY)
    if mark := _MARKS.search(summary):
        return Problem(code=ProblemCode.MARKS, values={"phrase": mark[0].strip()})
    if phrase := _order_in(summary, _words_of_people(stretch.pieces)):
        return Problem(code=ProblemCode.ORDERS, values={"phrase": phrase})
    told = to_context(Summary(first=stretch.first, last=stretch.last, summary=summary), seq=0)
    if estimate_entry(told) >= stretch.tokens:
        return Problem(code=ProblemCode.GROWS)
    if lost := next((one for one in required if one not in summary), ""):
        return Problem(code=ProblemCode.LOSES, values={"identifier": lost})
    return None


# Nothing said.

_HEADING = re.compile(r"^\s*#+.*$", re.MULTILINE)
_NOTHING = re.compile(
    r"\b(?:none|nothing|n/a|no|unknown|not (?:specified|mentioned|available))\b|[无沒没]有?|暂无", re.I
)
_WORD = re.compile(r"\w+")


def _says_nothing(summary: str) -> bool:
    """Headings alone, or "(none)" under each of them, are no summary. Every Chinese character counts as a word."""
    rest = _NOTHING.sub(" ", _HEADING.sub(" ", summary))
    return sum(1 if word.isascii() else len(word) for word in _WORD.findall(rest)) < LEAST_WORDS


# Orders and marks.

_ORDER = re.compile(
    r"(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|every\s+)*"
    r"(?:previous|prior|above|earlier|preceding|former|system)\s+\w+"
    r"|you\s+(?:are\s+now|must\s+now|will\s+now)\s+\w+"
    r"|(?:new|updated|real|actual)\s+(?:system\s+)?(?:instructions?|prompt)\s*:"
    r"|do\s+not\s+(?:tell|inform|mention\s+(?:this|it)\s+to)\s+the\s+user"
    r"|reveal\s+(?:your|the)\s+(?:system\s+prompt|instructions?|secrets?)"
    r"|(?:important|attention|note)\s*[:!]?\s+(?:ai|assistant|model|agent|summari[sz]er)\b"
    r"|忽略(?:之前|以上|前面|上述|先前|所有|一切)[^。\n]{0,12}(?:指令|指示|要求|规则|提示)"
    r"|(?:不要|切勿|别)告诉用户",
    re.IGNORECASE,
)
_MARKS = re.compile(
    r"</?record>|<\|[a-z_]+\|>|</?(?:tool_call|function_calls?|invoke|system)>|\[(?:assistant|tool)[ _](?:tool )?call\]"
    r"|\[Summary of entries|" + re.escape(SUMMARY_ENDS),
    re.IGNORECASE,
)


def _order_in(summary: str, said: str) -> str:
    """The first known phrase that nobody who may give orders has used."""
    for match in _ORDER.finditer(summary):
        if " ".join(match[0].lower().split()) not in said:
            return match[0]
    return ""


def _words_of_people(pieces: Iterable[Node]) -> str:
    return "\n".join(" ".join(text.lower().split()) for text in _said(pieces))


def _said(pieces: Iterable[Node]) -> Iterator[str]:
    for node in pieces:
        if isinstance(node.entry, ModelInput) and not node.entry.is_internal:
            yield node.entry.text


# Identifiers.

_IDENTIFIER = re.compile(
    r"`(?P<quoted>[^`\s]{2,})`"
    r"|https?://[^\s<>\"'`)\]}]+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"
    r"|\b[A-Z][A-Z0-9]+-[0-9]+\b"
    r"|\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?\b"
    r"|(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@-]+){2,}"
    r"|(?<![\w/])[\w@-]+(?:/[\w.@-]+)+\.[A-Za-z0-9]{1,8}\b",
    re.ASCII,
)


def required_identifiers(pieces: Sequence[Node], *, most: int = MOST_IDENTIFIERS) -> tuple[str, ...]:
    """What must be found in the summary: what people named, the newest first, then what an earlier summary kept."""
    earlier = [node.entry.summary for node in pieces if isinstance(node.entry, Summary)]
    texts = [*reversed([*_said(pieces)]), *reversed(earlier)]
    found = (name for text in texts for name in identifiers_in(text))
    named = dict.fromkeys(name for name in found if len(name) <= MOST_CHARS)
    return tuple(named)[:most]


def identifiers_in(text: str) -> Iterator[str]:
    for match in _IDENTIFIER.finditer(text):
        yield (match["quoted"] or match[0]).rstrip(".,;:!?")
