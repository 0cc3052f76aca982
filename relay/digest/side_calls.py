"""Side calls: requests that a program makes for itself (titles, probes, routers, counts) beside its conversation.

docs/relay-recording.md lists their shapes. This module looks at one request alone; `named_side_calls` at its
conversation too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from history.clients import CACHE_MARKING_CLIENTS, TITLE, declared_side_call
from history.dialects import DecodedRequest
from history.dialects.json_access import obj
from history.entries import Entry, ModelInput, ModelOutput, ToolResults
from relay.gateway.journal.records import CallAccepted

COUNT, PROBE, ROUTER, SIDE_QUESTION, OTHER = "count", "probe", "router", "aside", "other"

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
# Fields of the JSON that a router, or a check for the next speaker, asks for.
_ROUTER_FIELDS = re.compile(r"complexity_(?:score|reasoning)|next_speaker", re.IGNORECASE)
# The only field of the JSON that a program asks for when it names a conversation.
_TITLE_FIELDS = frozenset({"title", "name", "topic", "summary"})
READ_CHARS = 4_000
PROBE_CHARS = 32  # long enough for a probe such as "quota"
CACHE_MARKER = "cache_control"


def side_call_kind(
    record: CallAccepted, request: DecodedRequest | None, headers: Mapping[str, str], *, client: str
) -> str:
    """The kind of side call that a request is by itself; '' if it may be part of a conversation."""
    if record.kind == COUNT:
        return COUNT
    if request is None:
        return ""
    if kind := declared_side_call(headers):
        return kind
    if client in CACHE_MARKING_CLIENTS and _is_behind_cache_marker(request):
        return SIDE_QUESTION
    if request.tools or any(isinstance(entry, ModelOutput) and entry.tool_requests for entry in request.entries):
        return ""
    # A long question with a one-token answer is not a probe.
    if request.options.max_tokens == 1 and 0 < len(_single_message(request)) <= PROBE_CHARS:
        return PROBE
    if _ROUTER_FIELDS.search(" ".join(_answer_fields(request))):
        return ROUTER
    return TITLE if record.session is None and wants_title(request) else ""


def is_answerless(request: DecodedRequest) -> bool:
    """Whether a request holds questions alone: no answer, no tools, no results. A prefilled answer does not count."""
    entries = _without_prefill(request)
    return bool(entries) and not request.tools and all(isinstance(entry, ModelInput) for entry in entries)


def kind_by_schema(request: DecodedRequest) -> str:
    fields = _answer_fields(request)
    return TITLE if len(fields) == 1 and fields[0] in _TITLE_FIELDS else OTHER


def new_text(request: DecodedRequest) -> str:
    new = list(takewhile(lambda entry: not isinstance(entry, ModelOutput), reversed(_without_prefill(request))))
    return "\n\n".join(filter(None, (entry.text for entry in reversed(new))))


def wants_title(request: DecodedRequest) -> bool:
    """A title is asked for once, in one message that has no answer."""
    instruction = request.system[:READ_CHARS]
    if _TASK_HEADING.match(_single_message(request)):
        return True
    most = 2 if _TITLE_HEADING.match(instruction) else 1
    return is_answerless(request) and len(_without_prefill(request)) <= most and bool(_TITLE_PROMPT.search(instruction))


def _without_prefill(request: DecodedRequest) -> Sequence[Entry]:
    """The entries without an answer at the end: a program that wants an object may begin it itself."""
    is_prefilled = bool(request.entries) and isinstance(request.entries[-1], ModelOutput)
    return request.entries[:-1] if is_prefilled else request.entries


def _is_behind_cache_marker(request: DecodedRequest) -> bool:
    """Whether the last answer has the marker and nothing after it: summaries, suggestions, recaps, `/btw`."""
    answers = (index for index, entry in enumerate(request.entries) if isinstance(entry, ModelOutput))
    last = max(answers, default=None)
    if last is None or not isinstance(request.entries[-1], ModelInput):
        return False
    return _has_cache_marker(request.entries[last]) and not any(map(_has_cache_marker, request.entries[last + 1 :]))


def _has_cache_marker(entry: Entry) -> bool:
    parts: Iterable[object] = ()
    if isinstance(entry, ModelInput | ModelOutput):
        parts = entry.parts
    elif isinstance(entry, ToolResults):
        parts = [*entry.results, *(part for result in entry.results for part in result.parts)]
    return any(CACHE_MARKER in getattr(part, "extra", ()) for part in parts)


def _answer_fields(request: DecodedRequest) -> list[str]:
    schema = request.options.form.schema if request.options.form else None
    return list(obj(obj(schema).get("properties")))


def _single_message(request: DecodedRequest) -> str:
    entries = _without_prefill(request)
    first = entries[0] if len(entries) == 1 else None
    return first.text[:READ_CHARS] if isinstance(first, ModelInput) else ""
