"""How many tokens a call used, read from the edges of its reply without parsing the rest.

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
from relay.gateway.upstream.reply_edges import ReplyCopy

# Of a request or of a stream of events, whose envelope is longer than what it says.
BYTES_PER_TOKEN, BYTES_PER_STREAMED_TOKEN = 4, 40
# Longer ones are not read whole while others wait.
MOST_READ = 512 * 1024
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
    """What the vendor counted; some give the input at the beginning and the output at the end."""
    api = DIALECTS[dialect].HTTP_API
    mark = api.usage_field
    last = _last(tail, mark)
    if not api.splits_usage:
        return api.read_usage(last) if last else None
    first = _object_after(head, head.find(mark), mark)
    usage = api.read_usage(first) if first else None
    return merged_usage(usage, api.read_usage(last)) if last else usage


def usage_of(
    dialect: str, edges: ReplyCopy, *, encoding: str = "", request_size: int, reply_size: int, is_done: bool
) -> Usage | None:
    """What the reply used: by the vendor's last word, which stands at the end of it, else by reading what came."""
    plain = edges.plain(encoding)
    if not plain.size:  # compressed in a way that is not read here
        return estimated(request_size, reply_size=reply_size, is_stream=True)
    found = told(usage_in(dialect, plain.head, plain.tail))
    if found and is_done and _has_ended(dialect, plain):
        return found
    text = plain.text
    if text is None or len(text) > MOST_READ:
        return _like_its_beginning(dialect, plain, found, request_size=request_size)
    by_size = estimated(request_size, reply_size=len(text), is_stream=is_streamed(text))
    return counted(folded_from(dialect, text), request_size=request_size, by_size=by_size)


def counted(folded: Assembler, *, request_size: int, by_size: Usage | None) -> Usage | None:
    """What a reply used, by what was read of it. Nothing where it was an error from the first word."""
    usage = told(folded.usage)
    if folded.ended:
        return usage or by_size
    written = written_in(folded)
    if usage:
        return so_far(usage, written=written)
    if written:
        return Usage(input_tokens=request_size // BYTES_PER_TOKEN, output_tokens=written, source="estimated")
    return None if folded.failed else by_size


def folded_from(dialect: str, text: bytes) -> Assembler:
    decoder = DIALECTS[dialect].stream_decoder("")
    return Assembler().feed_all([*decoder.feed(text), *decoder.close()])


def told(usage: Usage | None) -> Usage | None:
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
    by_size = estimated(request_size, reply_size=reply.size, is_stream=is_streamed(beginning))
    written = written_in(folded_from(dialect, lines)) * reply.size // max(1, len(lines)) or by_size.output_tokens
    return so_far(found, written=written) if found else replace(by_size, output_tokens=written)


def usage_told(dialect: str, edges: ReplyCopy, *, encoding: str = "") -> Usage | None:
    """Of a call that is only passed on (embeddings, pictures, sounds): as it says, since its size would say nothing."""
    api, plain = DIALECTS[dialect].HTTP_API, edges.plain(encoding)
    found = _last(plain.tail, api.usage_field) or _last(plain.head, api.usage_field)
    return api.read_other_usage(found) if found else None


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
