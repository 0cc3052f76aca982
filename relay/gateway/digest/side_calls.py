"""Calls that a program makes for itself: a title, a probe, a router, a count. They are no part of what people say.

They are tagged and stand as notes beside the conversation that they belong to, never in its path or its title.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from history.dialects import DecodedRequest
from history.dialects.loose import obj
from history.entries import ModelInput, ModelOutput
from relay.gateway.records import Accepted

# What such calls are told to do, by the programs that make them.
_TITLE = re.compile(
    r"you are a title generator|isnewtopic|new conversation topic"
    r"|(?:generate|write|create) (?:a|an|the)\b[^.\n]{0,60}\btitle\b[^.\n]{0,40}"
    r"\b(?:conversation|chat|session|thread)\b"
    r"|summari[sz]e this (?:coding )?conversation in under \d+ characters",
    re.IGNORECASE,
)
# A few programs put it where a person would speak, under a heading that no person writes.
_TASK = re.compile(r"\A\s*#+ task:\s*generate [^.\n]{0,60}\b(?:title|tags|queries)\b", re.IGNORECASE)
_ROUTER = re.compile(r"\btask rout(?:er|ing)\b|complexity_(?:score|reasoning)|next_speaker", re.IGNORECASE)
# Kinds of Codex's own errands that are no conversation.
_ERRANDS = frozenset({"compact", "memory_consolidation"})
READ_CHARS = 4_000


def side_call(record: Accepted, request: DecodedRequest | None, headers: Mapping[str, str]) -> str:
    """Which kind of side call it is; '' for what people and agents say."""
    if record.kind == "count":
        return "count"
    if request is None:
        return ""
    if (errand := headers.get("x-openai-subagent", "")) in _ERRANDS:
        return errand
    if request.tools or any(isinstance(entry, ModelOutput) and entry.tool_requests for entry in request.entries):
        return _router(request)
    if request.options.max_tokens == 1 and len(request.entries) == 1:
        return "probe"
    if _TITLE.search(request.system[:READ_CHARS]) or _TASK.match(_first_words(request)):
        return "title"
    return _router(request)


def _router(request: DecodedRequest) -> str:
    """Gemini CLI asks a small model which model to ask, and who is to speak next: it wants an object of that shape."""
    config = obj(request.extra.get("generationConfig"))
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return "router" if schema and not request.tools and _ROUTER.search(str(schema)) else ""


def _first_words(request: DecodedRequest) -> str:
    said = request.entries[0] if len(request.entries) == 1 else None
    return said.text[:READ_CHARS] if isinstance(said, ModelInput) else ""
