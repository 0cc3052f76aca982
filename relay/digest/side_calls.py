"""Side calls: requests that a program makes for itself (titles, probes, routers, counts) beside its conversation.

They are recognised by their shape, because programs change their wording with every release. This module looks at one
request alone; `named_side_calls` compares a request with the conversation whose name it carries. Words decide only
where a request names no conversation: then there is nothing to compare it with.

A side call is stored as a note beside its conversation, never in its path or its title.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from history.dialects import DecodedRequest, DialectError
from history.dialects.json_access import obj, parsed, string
from history.entries import Entry, ModelInput, ModelOutput, ToolResults
from relay.digest.clients import CLAUDE_CODE
from relay.gateway.journal.records import Accepted

COUNT, PROBE, TITLE, ROUTER, ASIDE, SIDE_CALL = "count", "probe", "title", "router", "aside", "errand"

# Title prompts of programs that do not name their conversations (chat front ends).
_TITLE_PROMPT = re.compile(
    r"you are a title generator|isnewtopic|new conversation topic"
    r"|(?:generate|write|create) (?:a|an|the)\b[^.\n]{0,60}\btitle\b[^.\n]{0,40}"
    r"\b(?:conversation|chat|session|thread)\b"
    r"|summari[sz]e this (?:coding )?conversation in under \d+ characters",
    re.IGNORECASE,
)
_TITLE_HEADING = re.compile(r"\s*you are a title generator", re.IGNORECASE)
_TASK_HEADING = re.compile(r"\A\s*#+ task:\s*generate [^.\n]{0,60}\b(?:title|tags|queries)\b", re.IGNORECASE)
# Fields of the JSON that Gemini CLI's router and its check for the next speaker ask for.
_ROUTER_FIELDS = re.compile(r"complexity_(?:score|reasoning)|next_speaker", re.IGNORECASE)
# The only field of the JSON that a program asks for when it names a conversation.
_TITLE_FIELDS = frozenset({"title", "name", "topic", "summary"})
# Codex says what a call is for: older builds in a header of its own, newer ones in the metadata of a turn. A title has
# a thread of its own there, so its name leads to no conversation.
_CODEX_SIDE_CALLS = frozenset({"compact", "memory_consolidation"})
_CODEX_THREADS = {"thread_title": TITLE, "memory_consolidation": "memory_consolidation"}
_CODEX_REQUESTS = {"compaction": "compact"}
READ_CHARS = 4_000
# Claude Code's probe says "quota".
PROBE_CHARS = 32
CACHE_MARKER = "cache_control"


def side_call(record: Accepted, request: DecodedRequest | None, headers: Mapping[str, str], *, client: str) -> str:
    """The kind of side call that a request is by itself; '' if it may be part of a conversation."""
    if record.kind == COUNT:
        return COUNT
    if request is None:
        return ""
    if kind := _codex_kind(headers):
        return kind
    if client == CLAUDE_CODE and _is_left_out_of_cache(request):
        return ASIDE
    if request.tools or any(isinstance(entry, ModelOutput) and entry.tool_requests for entry in request.entries):
        return ""
    if _is_probe(request):
        return PROBE
    if _is_router(request):
        return ROUTER
    return TITLE if record.session is None and asks_for_title(request) else ""


def _codex_kind(headers: Mapping[str, str]) -> str:
    kind = headers.get("x-openai-subagent", "")
    if kind in _CODEX_SIDE_CALLS:
        return kind
    try:
        turn = obj(parsed(headers.get("x-codex-turn-metadata", "").encode()))
    except (DialectError, ValueError, RecursionError):
        return ""
    return _CODEX_REQUESTS.get(string(turn.get("request_kind")), "") or _CODEX_THREADS.get(
        string(turn.get("thread_source")), ""
    )


def is_answerless(request: DecodedRequest) -> bool:
    """Whether a request holds questions alone: no answer, no tools, no results. A prefilled answer does not count."""
    entries = without_prefill(request)
    return bool(entries) and not request.tools and all(isinstance(entry, ModelInput) for entry in entries)


def kind_by_form(request: DecodedRequest) -> str:
    """What to call a side call: a title if the JSON that it asks for has one field with such a name."""
    schema = obj(request.options.form.schema if request.options.form else None)
    fields = list(obj(schema.get("properties")))
    return TITLE if len(fields) == 1 and fields[0] in _TITLE_FIELDS else SIDE_CALL


def new_words(request: DecodedRequest) -> str:
    """What a request says after the last answer in it."""
    said: list[str] = []
    for entry in reversed(without_prefill(request)):
        if isinstance(entry, ModelOutput):
            break
        said.insert(0, entry.text)
    return "\n\n".join(filter(None, said))


def without_prefill(request: DecodedRequest) -> Sequence[Entry]:
    """The entries without an answer at the end: a program that wants an object may begin it itself."""
    is_begun = bool(request.entries) and isinstance(request.entries[-1], ModelOutput)
    return request.entries[:-1] if is_begun else request.entries


def _is_left_out_of_cache(request: DecodedRequest) -> bool:
    """Claude Code marks the end of what it will send again for the vendor's cache. Questions that it asks for itself
    after a conversation (summaries, suggestions, recaps, `/btw`) come behind that mark, some after results of tools."""
    places = (place for place, entry in enumerate(request.entries) if isinstance(entry, ModelOutput))
    answer = max(places, default=None)
    if answer is None or not isinstance(request.entries[-1], ModelInput):
        return False
    return _has_cache_marker(request.entries[answer]) and not any(map(_has_cache_marker, request.entries[answer + 1 :]))


def _has_cache_marker(entry: Entry) -> bool:
    parts: Sequence[Any] = ()
    if isinstance(entry, ModelInput | ModelOutput):
        parts = entry.parts
    elif isinstance(entry, ToolResults):
        parts = [*entry.results, *(part for result in entry.results for part in result.parts)]
    return any(CACHE_MARKER in getattr(part, "extra", ()) for part in parts)


def _is_probe(request: DecodedRequest) -> bool:
    """A check whether a key works or how much quota is left. A long question with a one-word answer is not one."""
    return request.options.max_tokens == 1 and 0 < len(_only_words(request)) <= PROBE_CHARS


def _is_router(request: DecodedRequest) -> bool:
    schema = request.options.form.schema if request.options.form else None
    return bool(schema) and bool(_ROUTER_FIELDS.search(" ".join(obj(obj(schema).get("properties")))))


def asks_for_title(request: DecodedRequest) -> bool:
    """A title is asked for once, in one message that has no answer."""
    instruction = request.system[:READ_CHARS]
    if _TASK_HEADING.match(_only_words(request)):
        return True
    most = 2 if _TITLE_HEADING.match(instruction) else 1
    return is_answerless(request) and len(without_prefill(request)) <= most and bool(_TITLE_PROMPT.search(instruction))


def _only_words(request: DecodedRequest) -> str:
    """The text of the request, if it is a single message."""
    entries = without_prefill(request)
    said = entries[0] if len(entries) == 1 else None
    return said.text[:READ_CHARS] if isinstance(said, ModelInput) else ""
