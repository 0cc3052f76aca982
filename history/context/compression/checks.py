"""Checks of a summary without a model: empty, too long, lost identifiers, injected instructions, imitated marks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import auto

from history.context.compression.planning import SummarySpan
from history.context.messages import SUMMARY_ENDS, to_context
from history.context.tokens import estimate_entry
from history.context.values import Remark
from history.entries import ModelInput, Node, Summary
from history.text.lazy import SentenceCode
from history.text.lazy import gettext_noop as _

# Required identifiers: how many, and their maximal length.
MOST_IDENTIFIERS = 12
MOST_CHARS = 120
LEAST_WORDS = 5


class ProblemCode(SentenceCode):
    EMPTY = auto(), _("the summary is empty")
    GROWS = auto(), _("the summary is longer than the messages that it replaces")
    LOSES = auto(), _("the summary omits %(identifier)s")
    ORDERS = auto(), _("the summary contains an instruction that no user gave: “%(phrase)s”")
    MARKS = auto(), _("the summary imitates message markers: “%(phrase)s”")
    FAILED = auto(), _("the model returned no summary")


def find_problem(summary: str, stretch: SummarySpan, *, required: Sequence[str]) -> Remark | None:
    """The reason to refuse this summary, or None."""
    if _is_empty(summary):
        return Remark(ProblemCode.EMPTY)
    if mark := _MARKS.search(summary):
        return Remark(ProblemCode.MARKS, values={"phrase": mark[0].strip()})
    if phrase := _injection_in(summary, stretch.pieces):
        return Remark(ProblemCode.ORDERS, values={"phrase": phrase})
    message = to_context(Summary(first=stretch.first, last=stretch.last, summary=summary), seq=0)
    if estimate_entry(message) >= stretch.tokens:
        return Remark(ProblemCode.GROWS)
    if lost := next((one for one in required if one not in summary), ""):
        return Remark(ProblemCode.LOSES, values={"identifier": lost})
    return None


_HEADING = re.compile(r"^\s*#+.*$", re.MULTILINE)
_NOTHING = re.compile(
    r"\b(?:none|nothing|n/a|no|unknown|not (?:specified|mentioned|available))\b|[无沒没]有?|暂无", re.I
)
_WORD = re.compile(r"\w+")


def _is_empty(summary: str) -> bool:
    """Whether there is nothing but headings and "(none)". Every Chinese character counts as a word."""
    rest = _NOTHING.sub(" ", _HEADING.sub(" ", summary))
    return sum(1 if word.isascii() else len(word) for word in _WORD.findall(rest)) < LEAST_WORDS


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


def _injection_in(summary: str, pieces: Iterable[Node]) -> str:
    """The first known injection phrase that no user wrote."""
    user_text = "\n".join(" ".join(text.lower().split()) for text in _user_texts(pieces))
    phrases = (match[0] for match in _ORDER.finditer(summary))
    return next((phrase for phrase in phrases if " ".join(phrase.lower().split()) not in user_text), "")


def _user_texts(pieces: Iterable[Node]) -> Iterator[str]:
    for node in pieces:
        if isinstance(node.entry, ModelInput) and not node.entry.is_internal:
            yield node.entry.text


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
    """Identifiers that the summary must contain: those of users, newest first, then those of earlier summaries."""
    earlier = [node.entry.summary for node in pieces if isinstance(node.entry, Summary)]
    texts = [*reversed([*_user_texts(pieces)]), *reversed(earlier)]
    found = (match for text in texts for match in _IDENTIFIER.finditer(text))
    names = ((match["quoted"] or match[0]).rstrip(".,;:!?") for match in found)
    return tuple(dict.fromkeys(name for name in names if len(name) <= MOST_CHARS))[:most]
