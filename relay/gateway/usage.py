"""How many tokens a call used, read from the edges of its reply without parsing the rest.

Vendors count at the beginning of a stream, at its end, or both. Where nothing is said, because the stream was cut or
the vendor tells only those who ask, what went through is counted instead and the source says so. Anthropic begins with
a placeholder for the output: of a stream that broke off, our estimate of its text counts where that is more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import ijson

from history.assembly import Assembler, merged_usage
from history.dialects import DIALECTS
from history.dialects.anthropic_messages.replies import usage_from as anthropic_usage
from history.dialects.gemini_generate.replies import usage_from as gemini_usage
from history.dialects.openai_chat.replies import usage_from as chat_usage
from history.dialects.openai_responses.replies import usage_from as responses_usage
from history.entries import Usage
from history.tokens import estimate_text
from relay.gateway.addresses import ANTHROPIC, CHAT, GEMINI, RESPONSES

READERS: dict[str, tuple[bytes, Callable[[Mapping[str, Any]], Usage]]] = {
    ANTHROPIC: (b'"usage"', anthropic_usage),
    CHAT: (b'"usage"', chat_usage),
    RESPONSES: (b'"usage"', responses_usage),
    GEMINI: (b'"usageMetadata"', gemini_usage),
}
EDGE_BYTES = 16 * 1024
# Of a request or of a stream of events, whose envelope is longer than what it says.
BYTES_PER_TOKEN, BYTES_PER_STREAMED_TOKEN = 4, 40
# What says the output of Anthropic's streams; within a text its quotes would be escaped.
_LAST_WORD = b'"message_delta"'
_DECODER = json.JSONDecoder()
# Where a reply says its name and that of its conversation: as a whole, or in the first event of a stream.
NAMED_AT = frozenset({"id", "conversation.id", "response.id", "response.conversation.id"})
LONGEST_NAME = 200


def name_in(head: bytes) -> str:
    """What a vendor that keeps its answers calls this one: a client may go on from it by that name."""
    return next((name for name in names_in(head) if name.startswith("resp_")), "") if b'"resp_' in head else ""


def names_in(head: bytes) -> Iterator[str]:
    """What a reply calls itself, not whatever stands in it; read as far as it goes, for a long one is not all here."""
    if head.lstrip()[:1] != b"{":
        head = head.partition(b"data:")[2].partition(b"\n")[0]
    with contextlib.suppress(ijson.JSONError):
        for place, event, value in ijson.parse(head):
            if event == "string" and place in NAMED_AT and value:
                yield str(value)[:LONGEST_NAME]


def usage_in(dialect: str, head: bytes, tail: bytes) -> Usage | None:
    """What the vendor says; Anthropic says the input at the beginning and the output at the end."""
    mark, read = READERS[dialect]
    last = _last(tail, mark)
    if dialect != ANTHROPIC:
        return read(last) if last else None
    first = _object_after(head, head.find(mark), mark)
    usage = read(first) if first else None
    return merged_usage(usage, read(last)) if last else usage


class Edges:
    """The beginning and the end of a reply, as it passes by."""

    __slots__ = ("_head", "_size", "_tail", "_tail_size")

    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._tail: list[bytes] = []
        self._size = self._tail_size = 0

    def add(self, chunk: bytes) -> None:
        if self._size < EDGE_BYTES:
            self._head.append(chunk)
        self._size += len(chunk)
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        if self._tail_size > 4 * EDGE_BYTES:
            self._tail = [self.tail]
            self._tail_size = EDGE_BYTES

    @property
    def head(self) -> bytes:
        return b"".join(self._head)[:EDGE_BYTES]

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail)[-EDGE_BYTES:]


def usage_of(dialect: str, edges: Edges, *, request_size: int, reply_size: int) -> Usage:
    """Where a reply has begun and nobody says what it used, what went through is counted."""
    head, tail = edges.head, edges.tail
    found = usage_in(dialect, head, tail)
    is_stream = is_streamed(head)
    if found is None or not (found.input_tokens or found.output_tokens):
        return estimated(request_size, reply_size=reply_size, is_stream=is_stream)
    if dialect == ANTHROPIC and is_stream and _LAST_WORD not in tail:
        return so_far(found, written=_written_like(dialect, head, reply_size=reply_size))
    return found


def usage_told(dialect: str, edges: Edges) -> Usage | None:
    """Of a call that is only passed on (embeddings, pictures, sounds): as it says, since its size would say nothing."""
    mark, read = READERS[dialect]
    told = _last(edges.tail, mark) or _last(edges.head, mark)
    if told is None or dialect != CHAT:
        return read(told) if told else None
    # OpenAI counts pictures and sounds in the words of Responses; some count embeddings by their total alone.
    return (
        responses_usage(told) if "input_tokens" in told else read({"prompt_tokens": told.get("total_tokens"), **told})
    )


def is_streamed(head: bytes) -> bool:
    """Whatever the caller asked for: a reply in one piece is one object."""
    return not head.lstrip().startswith(b"{")


def so_far(usage: Usage, *, written: int) -> Usage:
    """The vendor's word before its last, which for the output is a placeholder."""
    return replace(usage, output_tokens=max(usage.output_tokens, written), source="partial")


def written_in(folded: Assembler) -> int:
    """Our estimate of what came: words, thoughts and calls."""
    outputs = [one.output() for one in (folded, *folded.beside.values())]
    return sum(
        estimate_text(text)
        for output in outputs
        for text in (output.text, output.reasoning, *(request.arguments for request in output.tool_requests))
    )


def _written_like(dialect: str, head: bytes, *, reply_size: int) -> int:
    """The whole reply as dense as its beginning; where that has not a word, by its size."""
    lines = head[: head.rfind(b"\n") + 1]
    folded = Assembler().feed_all(DIALECTS[dialect].stream_decoder("").feed(lines + b"\n"))
    if written := written_in(folded):
        return written * reply_size // len(lines)
    return reply_size // BYTES_PER_STREAMED_TOKEN


def estimated(request_size: int, *, reply_size: int, is_stream: bool) -> Usage:
    per_token = BYTES_PER_STREAMED_TOKEN if is_stream else BYTES_PER_TOKEN
    return Usage(
        input_tokens=request_size // BYTES_PER_TOKEN, output_tokens=reply_size // per_token, source="estimated"
    )


def _last(said: bytes, mark: bytes) -> Mapping[str, Any] | None:
    place = said.rfind(mark)
    while place >= 0:
        if found := _object_after(said, place, mark):
            return found
        place = said.rfind(mark, 0, place)
    return None


def _object_after(said: bytes, place: int, mark: bytes) -> Mapping[str, Any] | None:
    """The object that this name has here, whatever follows it."""
    start = place + len(mark)
    brace = said.find(b"{", start, start + 8)
    if place < 0 or brace < 0 or said[start:brace].strip() != b":":
        return None
    try:
        found = _DECODER.raw_decode(said[brace:].decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
