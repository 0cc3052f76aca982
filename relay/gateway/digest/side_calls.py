"""Calls that a program makes for itself: a title, a probe, a router, a count, what a page says, what somebody may want
next. They are no part of what people say.

They are tagged and stand as notes beside the conversation that they belong to, never in its path or its title.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from history.dialects import DecodedRequest
from history.dialects.loose import obj
from history.entries import Entry, ModelInput, ModelOutput, Text
from relay.gateway.records import Accepted

# What such calls are told to do, by the programs that make them.
_TITLE = re.compile(
    r"you are a title generator|isnewtopic|new conversation topic"
    r"|(?:generate|write|create) (?:a|an|the)\b[^.\n]{0,60}\btitle\b[^.\n]{0,40}"
    r"\b(?:conversation|chat|session|thread)\b"
    r"|summari[sz]e this (?:coding )?conversation in under \d+ characters",
    re.IGNORECASE,
)
# opencode says in a message of its own that a title is wanted, before what is to be named.
_HEADED = re.compile(r"\s*you are a title generator", re.IGNORECASE)
# A few programs put it where a person would speak, under a heading that no person writes.
_TASK = re.compile(r"\A\s*#+ task:\s*generate [^.\n]{0,60}\b(?:title|tags|queries)\b", re.IGNORECASE)
# Claude Code reads pages for its tool with a call apart, and asks after the whole conversation what may come next, or
# what somebody who was away should know: in the place of a person, with words that none would use.
_PAGE = re.compile(r"\s*Web page content:\n---\n")
_AFTERTHOUGHTS = {
    "suggestion": re.compile(r"\s*\[SUGGESTION MODE:"),
    "recap": re.compile(r"\s*The user stepped away and is coming back\."),
}
_ROUTER = re.compile(r"\btask rout(?:er|ing)\b|complexity_(?:score|reasoning)|next_speaker", re.IGNORECASE)
# Kinds of Codex's own errands that are no conversation.
_ERRANDS = frozenset({"compact", "memory_consolidation"})
READ_CHARS = 4_000
# Claude Code asks "quota".
PROBE_CHARS = 32


def side_call(record: Accepted, request: DecodedRequest | None, headers: Mapping[str, str]) -> str:
    """Which kind of side call it is; '' for what people and agents say."""
    if record.kind == "count":
        return "count"
    if request is None:
        return ""
    if (errand := headers.get("x-openai-subagent", "")) in _ERRANDS:
        return errand
    if afterthought := _afterthought(request):
        return afterthought
    if request.tools or any(isinstance(entry, ModelOutput) and entry.tool_requests for entry in request.entries):
        return _router(request)
    if _is_probe(request):
        return "probe"
    if _PAGE.match(_only_words(request)):
        return "page"
    return "title" if _is_title(request) else _router(request)


def _afterthought(request: DecodedRequest) -> str:
    last = request.entries[-1] if request.entries else None
    texts = [part.text for part in last.parts if isinstance(part, Text)] if isinstance(last, ModelInput) else []
    return next((kind for kind, words in _AFTERTHOUGHTS.items() if any(map(words.match, texts))), "")


def _is_probe(request: DecodedRequest) -> bool:
    """Whether a key works, or how much of a quota is left; a long question with one word for an answer is none."""
    return request.options.max_tokens == 1 and 0 < len(_only_words(request)) <= PROBE_CHARS


def _is_title(request: DecodedRequest) -> bool:
    """A program sends what is to be named once and hears a title once: where somebody has answered, people talk."""
    told = request.system[:READ_CHARS]
    if _TASK.match(_only_words(request)):
        return True
    most = 2 if _HEADED.match(told) else 1
    said = _without_prefill(request)
    are_inputs = all(isinstance(entry, ModelInput) for entry in said)
    return are_inputs and len(said) <= most and bool(_TITLE.search(told))


def _without_prefill(request: DecodedRequest) -> Sequence[Entry]:
    """A program that wants an object may begin it itself."""
    is_begun = bool(request.entries) and isinstance(request.entries[-1], ModelOutput)
    return request.entries[:-1] if is_begun else request.entries


def _router(request: DecodedRequest) -> str:
    """Gemini CLI asks a small model which model to ask, and who is to speak next: it wants an object of that shape."""
    config = obj(request.extra.get("generationConfig"))
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return "router" if schema and not request.tools and _ROUTER.search(str(schema)) else ""


def _only_words(request: DecodedRequest) -> str:
    """What was said, if that is one thing."""
    entries = _without_prefill(request)
    said = entries[0] if len(entries) == 1 else None
    return said.text[:READ_CHARS] if isinstance(said, ModelInput) else ""
