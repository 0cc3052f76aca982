"""Token usage of a reply, read from its first and last bytes.

Vendors count at the beginning of a stream, at its end, or both. A reply that did not end as it should is read as it is
when it is digested, so that the same number counts for a limit and stands on the exchange: the vendor's word so far
(Anthropic begins with a placeholder for the output: our estimate of the text counts where that is more), else what went
through, and the source says so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import ijson

from history.answers.assembly import Assembler, merged_usage
from history.context.tokens import estimate_text
from history.dialects import DIALECTS
from history.entries import Usage
from relay.gateway.replies.edges import ReplyCopy

# Of a request or of a stream of events, whose envelope is longer than what it says.
BYTES_PER_TOKEN, BYTES_PER_STREAMED_TOKEN = 4, 40
# Longer ones are not read whole while others wait.
MOST_READ = 512 * 1024
_DECODER = json.JSONDecoder()
# Where a reply says its name and that of its conversation: as a whole, or in the first event of a stream.
ID_PLACES = frozenset({"id", "conversation.id", "response.id", "response.conversation.id"})
LONGEST_NAME = 200


def read_answer_id(head: bytes) -> str:
    """What a vendor that keeps its answers calls this one: a client may go on from it by that name."""
    return next((name for name in read_ids(head) if name.startswith("resp_")), "") if b'"resp_' in head else ""


def read_ids(head: bytes) -> Iterator[str]:
    """What a reply calls itself, not whatever stands in it; read as far as it goes, for a long one is not all here."""
    if head.lstrip()[:1] != b"{":
        head = head.partition(b"data:")[2].partition(b"\n")[0]
    with contextlib.suppress(ijson.JSONError):
        for place, event, value in ijson.parse(head):
            if event == "string" and place in ID_PLACES and value:
                yield str(value)[:LONGEST_NAME]


def find_usage(dialect: str, head: bytes, tail: bytes) -> Usage | None:
    """What the vendor counted; some give the input at the beginning and the output at the end."""
    api = DIALECTS[dialect].HTTP_API
    mark = api.usage_field
    last = _last(tail, mark)
    if not api.splits_usage:
        return api.read_usage(last) if last else None
    first = _object_after(head, head.find(mark), mark)
    usage = api.read_usage(first) if first else None
    return merged_usage(usage, api.read_usage(last)) if last else usage


def count_usage(
    dialect: str, edges: ReplyCopy, *, encoding: str = "", request_size: int, reply_size: int, is_done: bool
) -> Usage | None:
    """What the reply used: by the vendor's last word, which stands at the end of it, else by reading what came."""
    plain = edges.plain(encoding)
    if not plain.size:  # compressed in a way that is not read here
        return estimate_usage(request_size, reply_size=reply_size, is_stream=True)
    found = without_zero_usage(find_usage(dialect, plain.head, plain.tail))
    if found and is_done and _has_ended(dialect, plain):
        return found
    text = plain.text
    if text is None or len(text) > MOST_READ:
        return _like_its_beginning(dialect, plain, found, request_size=request_size)
    by_size = estimate_usage(request_size, reply_size=len(text), is_stream=is_streamed(text))
    return usage_of_answer(decode_text(dialect, text), request_size=request_size, by_size=by_size)


def usage_of_answer(folded: Assembler, *, request_size: int, by_size: Usage | None) -> Usage | None:
    """What a reply used, by what was read of it. Nothing where it was an error from the first word."""
    usage = without_zero_usage(folded.usage)
    if folded.ended:
        return usage or by_size
    written = estimate_output(folded)
    if usage:
        return partial_usage(usage, written=written)
    if written:
        return Usage(input_tokens=request_size // BYTES_PER_TOKEN, output_tokens=written, source="estimated")
    return None if folded.failed else by_size


def decode_text(dialect: str, text: bytes) -> Assembler:
    decoder = DIALECTS[dialect].stream_decoder("")
    return Assembler().feed_all([*decoder.feed(text), *decoder.close()])


def without_zero_usage(usage: Usage | None) -> Usage | None:
    """Some say that it was nothing, which is nothing said."""
    return usage if usage and (usage.input_tokens or usage.output_tokens) else None


def _has_ended(dialect: str, reply: ReplyCopy) -> bool:
    """Whether it surely ended as it should. Where that cannot be seen at once, the reply is read."""
    tail = reply.tail
    if not is_streamed(reply.head):
        return tail.rstrip().endswith(b"}")
    return DIALECTS[dialect].HTTP_API.has_final_event(tail, reply.text or tail)


def _like_its_beginning(dialect: str, reply: ReplyCopy, found: Usage | None, *, request_size: int) -> Usage:
    """Of a very long reply that broke off: all of it as dense as its beginning; where that has no word, by size."""
    text = reply.text
    beginning = reply.head if text is None else text[:MOST_READ]
    lines = beginning[: beginning.rfind(b"\n") + 1]
    by_size = estimate_usage(request_size, reply_size=reply.size, is_stream=is_streamed(beginning))
    written = estimate_output(decode_text(dialect, lines)) * reply.size // max(1, len(lines)) or by_size.output_tokens
    return partial_usage(found, written=written) if found else replace(by_size, output_tokens=written)


def count_other_usage(dialect: str, edges: ReplyCopy, *, encoding: str = "") -> Usage | None:
    """Of a call that is only passed on (embeddings, pictures, sounds): as it says, since its size would say nothing."""
    api, plain = DIALECTS[dialect].HTTP_API, edges.plain(encoding)
    found = _last(plain.tail, api.usage_field) or _last(plain.head, api.usage_field)
    return api.read_other_usage(found) if found else None


def is_streamed(head: bytes) -> bool:
    """Whatever the caller asked for: a reply in one piece is one object."""
    return not head.lstrip().startswith(b"{")


def partial_usage(usage: Usage, *, written: int) -> Usage:
    """The vendor's word before its last, which for the output is a placeholder."""
    return replace(usage, output_tokens=max(usage.output_tokens, written), source="partial")


def estimate_output(folded: Assembler) -> int:
    """Our estimate of what came: words, thoughts and calls."""
    outputs = [one.output() for one in (folded, *folded.beside.values())]
    return sum(
        estimate_text(text)
        for output in outputs
        for text in (output.text, output.reasoning, *(request.arguments for request in output.tool_requests))
    )


def estimate_usage(request_size: int, *, reply_size: int, is_stream: bool) -> Usage:
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
