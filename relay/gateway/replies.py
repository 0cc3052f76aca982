"""Copies of replies, and what they hold: the ids that they give, and token usage.

A reply that did not end properly is read in the same way when it is digested, so that the same number counts for a
limit and is stored on the exchange: the vendor's last count (Anthropic begins with a placeholder for the output: our
estimate counts if it is larger), else an estimate.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import ijson

from history.answers.assembly import Assembler, merged_usage
from history.context.tokens import estimate_text
from history.dialects import DIALECTS
from history.entries import JsonObject, Usage
from relay.gateway.call.decompression import PlainReply

COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
# Of a request, and of a stream of events, whose envelopes are longer than their content.
BYTES_PER_TOKEN, BYTES_PER_STREAMED_TOKEN = 4, 40
MOST_READ = 512 * 1024  # longer replies are not decoded to count them
_DECODER = json.JSONDecoder()
# Of a reply and its conversation: in a whole reply, or in the first event of a stream.
ID_PLACES = frozenset({"id", "conversation.id", "response.id", "response.conversation.id"})
LONGEST_ID = 200
EDGE_BYTES = 16 * 1024
MOST_COPIED, MOST_PLAIN = 4 * 1024 * 1024, 32 * 1024 * 1024  # of a reply as it came, and of the same decompressed


@dataclass(slots=True)
class ReplyCopy:
    """The first and last bytes of a reply, which hold its id and counts. `pieces` are all of it, if not too long."""

    pieces: list[bytes] | None = None
    size: int = 0
    head: bytes = b""
    tail: bytes = b""

    def add(self, chunk: bytes) -> None:
        if self.size < EDGE_BYTES:
            self.head = (self.head + chunk)[:EDGE_BYTES]
        self.size += len(chunk)
        self.tail = (self.tail + chunk)[-EDGE_BYTES:]
        if self.pieces is not None:
            self.pieces.append(chunk)
            if self.size > MOST_COPIED:
                self.pieces = None

    def beginning(self, encoding: str) -> bytes:
        plain = b""
        for piece in PlainReply(encoding).pieces(self.head):
            plain += piece
            if len(plain) > EDGE_BYTES:
                break
        return plain[:EDGE_BYTES]

    @property
    def text(self) -> bytes | None:
        return None if self.pieces is None else b"".join(self.pieces)

    def plain(self, encoding: str) -> "ReplyCopy":
        """The same decompressed; empty if it cannot be read."""
        if not encoding:
            return self
        plain, reading = ReplyCopy([]), PlainReply(encoding, most=MOST_PLAIN)
        text = b"".join(reading.pieces(self.text or b""))
        if text and not reading.is_unreadable:
            plain.add(text)
        return plain


def read_answer_id(head: bytes) -> str:
    """The id of an answer that the vendor stores: a client may continue from it."""
    return next((name for name in read_ids(head) if name.startswith("resp_")), "") if b'"resp_' in head else ""


def read_ids(head: bytes) -> Iterator[str]:
    """The ids of a reply itself, not those in its content; of a long reply only the first bytes are here."""
    if head.lstrip()[:1] != b"{":
        head = head.partition(b"data:")[2].partition(b"\n")[0]
    with contextlib.suppress(ijson.JSONError):
        for place, event, value in ijson.parse(head):
            if event == "string" and place in ID_PLACES and value:
                yield str(value)[:LONGEST_ID]


def find_usage(dialect: str, head: bytes, tail: bytes) -> Usage | None:
    """The vendor's count; some give the input at the beginning and the output at the end."""
    api = DIALECTS[dialect].HTTP_API
    mark = api.usage_field
    last = _last_object(tail, mark)
    if not api.splits_usage:
        return api.read_usage(last) if last else None
    first = _object_after(head, head.find(mark), mark)
    usage = api.read_usage(first) if first else None
    return merged_usage(usage, api.read_usage(last)) if last else usage


def read_usage(
    dialect: str, reply: ReplyCopy, encoding: str, *, is_chat: bool, request_size: int, is_done: bool
) -> Usage | None:
    """Of a reply as it came, in this content encoding."""
    plain = reply.plain(encoding)
    if not is_chat:
        return count_other_usage(dialect, plain)
    return count_usage(dialect, plain, request_size=request_size, reply_size=reply.size, is_done=is_done)


def count_usage(dialect: str, plain: ReplyCopy, *, request_size: int, reply_size: int, is_done: bool) -> Usage | None:
    """By the vendor's last count, which is at the end of the reply, else by decoding what came."""
    if not plain.size:  # compressed in a way that is not read here
        return estimate_usage(request_size, reply_size=reply_size, is_stream=True)
    found = without_zero_usage(find_usage(dialect, plain.head, plain.tail))
    if found and is_done and _has_ended(dialect, plain):
        return found
    text = plain.text
    if text is None or len(text) > MOST_READ:
        return _extrapolate(dialect, plain, found, request_size=request_size)
    by_size = estimate_usage(request_size, reply_size=len(text), is_stream=is_streamed(text))
    return usage_of_answer(decode_text(dialect, text), request_size=request_size, by_size=by_size)


def usage_of_answer(folded: Assembler, *, request_size: int, by_size: Usage | None) -> Usage | None:
    """By what was decoded. None if the reply was an error from the beginning."""
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
    """Counts of zero mean that the server does not count."""
    return usage if usage and (usage.input_tokens or usage.output_tokens) else None


def _has_ended(dialect: str, reply: ReplyCopy) -> bool:
    tail = reply.tail
    if not is_streamed(reply.head):
        return tail.rstrip().endswith(b"}")
    return DIALECTS[dialect].HTTP_API.has_final_event(tail, reply.text or tail)


def _extrapolate(dialect: str, reply: ReplyCopy, found: Usage | None, *, request_size: int) -> Usage:
    """Of a very long reply that broke off: as dense as its beginning; by size if that has no text."""
    text = reply.text
    beginning = reply.head if text is None else text[:MOST_READ]
    lines = beginning[: beginning.rfind(b"\n") + 1]
    by_size = estimate_usage(request_size, reply_size=reply.size, is_stream=is_streamed(beginning))
    written = estimate_output(decode_text(dialect, lines)) * reply.size // max(1, len(lines)) or by_size.output_tokens
    return partial_usage(found, written=written) if found else replace(by_size, output_tokens=written)


def count_other_usage(dialect: str, plain: ReplyCopy) -> Usage | None:
    """The vendor's count of a call that is only passed on (embeddings, images, audio): there the size means nothing."""
    api = DIALECTS[dialect].HTTP_API
    found = _last_object(plain.tail, api.usage_field) or _last_object(plain.head, api.usage_field)
    return api.read_other_usage(found) if found else None


def is_streamed(head: bytes) -> bool:
    """By what came, not by what the request asked for: a whole reply is one object."""
    return not head.lstrip().startswith(b"{")


def partial_usage(usage: Usage, *, written: int) -> Usage:
    """With the vendor's first count, whose output is a placeholder."""
    return replace(usage, output_tokens=max(usage.output_tokens, written), source="partial")


def estimate_output(folded: Assembler) -> int:
    outputs = [one.output() for one in (folded, *folded.further_answers.values())]
    texts = [text for output in outputs for text in (output.text, output.reasoning)]
    texts += [request.arguments for output in outputs for request in output.tool_requests]
    return sum(map(estimate_text, texts))


def estimate_usage(request_size: int, *, reply_size: int, is_stream: bool) -> Usage:
    written = reply_size // (BYTES_PER_STREAMED_TOKEN if is_stream else BYTES_PER_TOKEN)
    return Usage(input_tokens=request_size // BYTES_PER_TOKEN, output_tokens=written, source="estimated")


def _last_object(text: bytes, mark: bytes) -> JsonObject | None:
    place = text.rfind(mark)
    while place >= 0:
        if found := _object_after(text, place, mark):
            return found
        place = text.rfind(mark, 0, place)
    return None


def _object_after(text: bytes, place: int, mark: bytes) -> JsonObject | None:
    start = place + len(mark)
    brace = text.find(b"{", start, start + 8)
    if place < 0 or brace < 0 or text[start:brace].strip() != b":":
        return None
    try:
        found = _DECODER.raw_decode(text[brace:].decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
