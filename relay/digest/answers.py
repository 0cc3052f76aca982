"""What came back, read from the bytes of the upstream: a whole answer, half of one, or an error; and how many tokens.

Half an answer is still an answer. Tokens say where their number comes from: the vendor's own word at the end of an
answer is `provider`, its word so far is `partial` (vendors begin with a placeholder, so our estimate of the text counts
where it is more), and where there is none the number is `estimated`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from history.answers.assembly import Assembler
from history.answers.events import Failed
from history.dialects import DIALECTS
from history.entries import ModelOutput, Usage
from relay.digest.calls import RecordedAnswer
from relay.digest.recognisers.references import items_in
from relay.gateway.call.bodies import UnknownEncoding, Unreadable
from relay.gateway.call.json_weight import is_reply_too_heavy
from relay.gateway.journal.records import Accepted, Ended
from relay.gateway.replies.unpacking import Unpacking, in_slices
from relay.gateway.replies.usage import estimate_usage, is_streamed, usage_of_answer
from relay.providers import registry
from relay.providers.http import HttpProvider

DONE, UPSTREAM_ERROR, UPSTREAM_CUT = "done", "upstream_error", "upstream_cut"
# Something else than an answer came: a web page, or bytes that cannot be read.
UNREADABLE = "upstream_unreadable"
_WHY = {
    UPSTREAM_ERROR: "The vendor could not be reached.",
    UNREADABLE: "The provider sent something that is no answer of a model.",
}
_EMPTY = "The provider sent an empty reply."
# The caller had all of it, and we had no room for it.
NOT_KEPT = "not_kept"
# Bytes of the reply were damaged in the journal.
DAMAGED = "damaged"
TOO_LARGE = "too large"
# So much of a stream at a time: its events need not be in memory together.
CHUNK = 64 * 1024
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_REQUEST_IDS = ("request-id", "x-request-id", "x-goog-request-id", "anthropic-request-id")


class By(NamedTuple):
    """Who answered, which model, in which language: not always who was asked first."""

    provider: str
    model: str
    dialect: str


def answered_by(asked: Accepted, ended: Ended) -> By:
    said = ended.metadata
    return By(
        str(said.get("provider") or asked.provider),
        str(said.get("model") or asked.model),
        str(said.get("dialect") or asked.upstream_dialect or asked.dialect),
    )


def read_answer(
    asked: Accepted, ended: Ended, pieces: Sequence[bytes], *, missing: int = 0, most: int
) -> RecordedAnswer:
    """`missing` bytes behind these are lost. A reply that takes more memory than one of `most` bytes is not read."""
    body, unread = plain(b"".join(pieces), ended, most=most)
    if is_reply_too_heavy(body, most=most):
        return too_large(asked, ended)
    by = answered_by(asked, ended)
    if ended.status >= 400:
        body = _without_our_key(body, by.provider)
    dialect = DIALECTS.get(by.dialect)
    if asked.kind != "chat" or dialect is None:
        return _without_words(ended, body, unread=unread)
    folded = Assembler(provider=by.provider, model=by.model)
    if ended.status >= 400:
        folded.feed(dialect.decode_error(ended.status, body))
    elif body:
        decoder = dialect.stream_decoder(by.provider)
        for start in range(0, len(body), CHUNK):
            folded.feed_all(decoder.feed(body[start : start + CHUNK]))
        folded.feed_all(decoder.close())
    is_empty = not ended.reply_size
    reason = _reason(folded, ended, is_readable=bool(body) or is_empty)
    if missing and ended.reason == DONE and ended.status < 400:
        reason = DAMAGED
    if reason in (UPSTREAM_ERROR, UNREADABLE) and folded.failed is None:
        why = _EMPTY if reason == UNREADABLE and is_empty else _WHY[reason]
        folded.feed(Failed(message=ended.error or why, status=ended.status))
    usage = _usage(folded, asked, ended, body)
    output = _output(folded, asked, ended, usage=usage) if _has_words(asked, reason, unread) else None
    others = [_output(other, asked, ended, usage=None) for other in folded.beside.values()]
    return RecordedAnswer(
        reason=reason,
        output=output,
        others=tuple(others) if output is not None else (),
        usage=usage,
        error=folded.failed.message if folded.failed else ended.error,
        error_body=body.decode("utf-8", "replace") if ended.status >= 400 else "",
        unread=unread,
        reply_id=folded.request_id,
        blobs=folded.blobs | {name: data for other in folded.beside.values() for name, data in other.blobs.items()},
        skipped=len(folded.skipped),
        items=tuple(items_in(body)) if folded.request_id.startswith("resp_") else (),
    )


def too_large(asked: Accepted, ended: Ended) -> RecordedAnswer:
    """What is known of a reply that is not read: how it ended, and what its end says of its tokens."""
    usage = _hinted(ended) or _estimated(asked, ended, b"")
    return RecordedAnswer(reason=ended.reason, usage=usage, error=ended.error, unread=TOO_LARGE)


def _without_our_key(body: bytes, provider: str) -> bytes:
    """Some vendors repeat the key that they do not like; it is the operator's, and no caller's to read here."""
    known = registry.router().provider(provider)
    if not isinstance(known, HttpProvider):
        return body
    return known.endpoint.masked(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _without_words(ended: Ended, body: bytes, *, unread: str) -> RecordedAnswer:
    failed = ended.status >= 400
    told = body.decode("utf-8", "replace") if failed else ""
    reason = UPSTREAM_ERROR if failed and ended.reason == DONE else ended.reason
    return RecordedAnswer(reason=reason, usage=_hinted(ended), error=ended.error, error_body=told, unread=unread)


def _reason(folded: Assembler, ended: Ended, *, is_readable: bool) -> str:
    """The end of the connection, as the relay saw it, and what the vendor said in its bytes.

    `is_readable` means that the bytes of the reply are known here, even if there were none. A connection that ends
    without a single byte is not an answer, whatever its status.
    """
    if ended.reason == DONE and ended.status < 400 and ended.lost_bytes:
        return NOT_KEPT
    if ended.status >= 400 or (ended.reason == DONE and folded.failed):
        return UPSTREAM_ERROR
    if ended.reason == DONE and is_readable and folded.ended is None:
        return UPSTREAM_CUT if _has_begun(folded) else UNREADABLE
    return ended.reason


def _has_begun(folded: Assembler) -> bool:
    """Whether an answer came, or the beginning of one: of a whole reply that broke off only its braces tell."""
    is_broken = any("cut off" in skipped.problem for skipped in folded.skipped)
    return bool(folded.part_names or folded.request_id or folded.usage or folded.beside or is_broken)


def _has_words(asked: Accepted, reason: str, unread: str) -> bool:
    """Not where nobody kept a copy of the bytes, or can read them: the exchange says how many there were."""
    return reason in (UPSTREAM_ERROR, UNREADABLE) or (asked.recording != "no_replies" and not unread)


def _output(folded: Assembler, asked: Accepted, ended: Ended, *, usage: Usage | None) -> ModelOutput:
    output = folded.output(
        at=datetime.fromtimestamp(ended.at, UTC),
        latency=max(0.0, ended.first_byte_at - asked.at) if ended.first_byte_at else None,
        duration=max(0.0, ended.at - asked.at),
    )
    request_id = next((value for name, value in ended.response_headers if name.lower() in _REQUEST_IDS), "")
    return replace(output, usage=usage, request_id=request_id or output.request_id)


def _usage(folded: Assembler, asked: Accepted, ended: Ended, body: bytes) -> Usage | None:
    """A call that was counted when it ended has that number here, too: it is what its limits know of."""
    hinted = _hinted(ended)
    if hinted is not None and ended.is_counted:
        return replace(hinted, raw=folded.usage.raw) if folded.usage else hinted
    return usage_of_answer(folded, request_size=asked.body_size, by_size=hinted or _estimated(asked, ended, body))


def _estimated(asked: Accepted, ended: Ended, body: bytes) -> Usage | None:
    """Of a call that was not counted when it ended, and of which the vendor says nothing either."""
    if ended.is_counted or ended.status >= 400 or not ended.reply_size:
        return None
    size = len(body) if body and not ended.lost_bytes else ended.reply_size
    return estimate_usage(asked.body_size, reply_size=size, is_stream=is_streamed(body))


def _hinted(ended: Ended) -> Usage | None:
    hint: Mapping[str, Any] = ended.usage_hint
    counts: dict[str, Any] = {name: hint[name] for name in _COUNTS if isinstance(hint.get(name), int)}
    if not any(counts.values()):
        return None
    source = hint.get("source")
    return Usage(**counts, source=source if source in ("provider", "partial") else "estimated")


def plain(body: bytes, ended: Ended, *, most: int) -> tuple[bytes, str]:
    """Upstreams are asked for plain bytes; some compress all the same. What was cut off is read as far as it goes.

    Where nothing can be read, why: how it was compressed, or that it is larger than `most` bytes.
    """
    encoding = next((value for name, value in ended.response_headers if name.lower() == "content-encoding"), "")
    if not encoding:
        return body, ""
    pieces, size = [], 0
    try:
        for piece in in_slices(Unpacking(encoding), body):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                return b"", TOO_LARGE
    except (UnknownEncoding, Unreadable):
        return b"", f"compressed as {encoding.strip().lower()}" if body else ""
    return b"".join(pieces), ""
