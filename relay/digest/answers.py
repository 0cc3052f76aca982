"""Answers of upstreams, read from their bytes: output, token counts, and how the exchange ended.

Half an answer is still an answer. The source of the counts is `provider` at the end of an answer, `partial` for counts
so far (vendors begin with a placeholder, so our estimate of the text counts where it is higher), else `estimated`.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from history.answers.assembly import Assembler
from history.answers.events import AnswerFailed
from history.dialects import DIALECTS, Dialect
from history.dialects.http_api import HttpApi
from history.entries import ModelOutput, Part, Reasoning, Text, Usage
from relay.digest.calls import PendingCall, RecordedAnswer
from relay.digest.requests import RelayedRequest
from relay.gateway.call.decompression import Decompression, UnknownEncoding
from relay.gateway.call.errors import UNREADABLE
from relay.gateway.call.json_scanner import Unreadable, is_reply_too_heavy
from relay.gateway.journal.records import CallAccepted, CallEnded
from relay.gateway.references.issued_ids import stored_item_ids
from relay.gateway.replies import COUNTS, estimate_usage, is_streamed, usage_of_answer
from relay.providers import registry

DONE, UPSTREAM_ERROR, UPSTREAM_CUT = "done", "upstream_error", "upstream_cut"
_UNREACHABLE = "The provider could not be reached."
_NO_ANSWER = "The provider sent an invalid response."
_EMPTY = "The provider sent an empty response."
NOT_KEPT = "not_kept"  # the caller had all of it, and the journal had no space for it
DAMAGED = "damaged"  # bytes of the reply were damaged in the journal
TOO_LARGE = "too large"
CHUNK = 64 * 1024  # a stream is decoded in chunks: its events need not be in memory together
MOST_ITEMS = 50
PREFILLED = "prefilled"  # how many characters of an answer its client had written; on the answer and on the exchange


class AnsweringModel(NamedTuple):
    """Provider, model and dialect that answered: not always those that were asked first."""

    provider: str
    model: str
    dialect: str


def answering_model(accepted: CallAccepted, ended: CallEnded) -> AnsweringModel:
    metadata = ended.metadata
    return AnsweringModel(
        str(metadata.get("provider") or accepted.provider),
        str(metadata.get("model") or accepted.model),
        str(metadata.get("dialect") or accepted.upstream_dialect or accepted.dialect),
    )


def read_answer(accepted: CallAccepted, ended: CallEnded, reply: bytes, *, missing: int, most: int) -> RecordedAnswer:
    """`missing` bytes behind these are lost. A reply that takes more memory than one of `most` bytes is not read."""
    body, unread = unpack(reply, ended, most=most)
    if is_reply_too_heavy(body, most=most):
        return unread_answer(accepted, ended)
    upstream = answering_model(accepted, ended)
    if ended.status >= 400:
        body = _mask_operator_key(body, upstream.provider)
    dialect = DIALECTS.get(upstream.dialect)
    error_body = body.decode("utf-8", "replace") if ended.status >= 400 else ""
    if accepted.kind != "chat" or dialect is None:
        reason = UPSTREAM_ERROR if ended.status >= 400 and ended.reason == DONE else ended.reason
        usage = _hinted_usage(ended)
        return RecordedAnswer(reason=reason, usage=usage, error=ended.error, error_body=error_body, unread=unread)
    assembler = _assemble(dialect, upstream, ended, body)
    is_empty = not ended.reply_size
    reason = _end_reason(assembler, ended, is_readable=bool(body) or is_empty)
    if missing and ended.reason == DONE and ended.status < 400:
        reason = DAMAGED
    if reason in (UPSTREAM_ERROR, UNREADABLE) and assembler.failed is None:
        unreadable = _EMPTY if is_empty else _NO_ANSWER
        message = _UNREACHABLE if reason == UPSTREAM_ERROR else unreadable
        assembler.feed(AnswerFailed(message=ended.error or message, status=ended.status))
    usage = _usage(assembler, accepted, ended, body)
    # Without a copy of the bytes, or if they cannot be read, the exchange says how many there were.
    has_output = reason in (UPSTREAM_ERROR, UNREADABLE) or (accepted.recording != "no_replies" and not unread)
    api = dialect.HTTP_API
    assemblers = (assembler, *assembler.further_answers.values())
    output, *others = (_output(one, api, accepted, ended) for one in assemblers)
    has_stored_id = api.stores_answers and assembler.request_id.startswith(api.reply_id_prefix)
    return RecordedAnswer(
        reason=reason,
        output=replace(output, usage=usage) if has_output else None,
        others=tuple(others) if has_output else (),
        usage=usage,
        error=assembler.failed.message if assembler.failed else ended.error,
        error_body=error_body,
        unread=unread,
        reply_id=assembler.request_id,
        blobs={name: data for one in assemblers for name, data in one.blobs.items()},
        skipped=len(assembler.unreadable),
        items=item_ids(api, body) if has_stored_id else (),
    )


def unread_answer(accepted: CallAccepted, ended: CallEnded) -> RecordedAnswer:
    usage = _hinted_usage(ended) or _estimated_usage(accepted, ended, b"")
    return RecordedAnswer(reason=ended.reason, usage=usage, error=ended.error, unread=TOO_LARGE)


def unpack(body: bytes, ended: CallEnded, *, most: int) -> tuple[bytes, str]:
    """The plain bytes, or why they cannot be read. Some upstreams compress although they are asked not to."""
    encoding = next((value for name, value in ended.response_headers if name.lower() == "content-encoding"), "")
    if not encoding:
        return body, ""
    pieces, size = [], 0
    try:
        for piece in Decompression(encoding).in_slices(body):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                return b"", TOO_LARGE
    except (UnknownEncoding, Unreadable):
        return b"", f"compressed as {encoding.strip().lower()}" if body else ""
    return b"".join(pieces), ""


def _assemble(dialect: Dialect, upstream: AnsweringModel, ended: CallEnded, body: bytes) -> Assembler:
    assembler = Assembler(provider=upstream.provider, model=upstream.model)
    if ended.status >= 400:
        assembler.feed(dialect.decode_error(ended.status, body))
    elif body:
        decoder = dialect.stream_decoder(upstream.provider)
        for start in range(0, len(body), CHUNK):
            assembler.feed_all(decoder.feed(body[start : start + CHUNK]))
        assembler.feed_all(decoder.close())
    return assembler


def _mask_operator_key(body: bytes, provider: str) -> bytes:
    """Some vendors repeat a key that they refuse; it is the operator's, and callers must not read it here."""
    known = registry.router().provider(provider)
    if known is None:
        return body
    return known.endpoint.masked(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _end_reason(assembler: Assembler, ended: CallEnded, *, is_readable: bool) -> str:
    """The relay's end of the call, corrected by the bytes: without a single byte, status 200 is not an answer either.

    `is_readable` means that the bytes of the reply are known here, even if there were none.
    """
    if ended.reason == DONE and ended.status < 400 and ended.lost_bytes:
        return NOT_KEPT
    if ended.status >= 400 or (ended.reason == DONE and assembler.failed):
        return UPSTREAM_ERROR
    if ended.reason == DONE and is_readable and assembler.ended is None:
        return UPSTREAM_CUT if _has_begun(assembler) else UNREADABLE
    return ended.reason


def _has_begun(assembler: Assembler) -> bool:
    """Whether at least the beginning of an answer came: a whole reply that broke off shows it by its braces alone."""
    is_broken = any("cut off" in skipped.problem for skipped in assembler.unreadable)
    return bool(
        assembler.part_names or assembler.request_id or assembler.usage or assembler.further_answers or is_broken
    )


def item_ids(api: HttpApi, reply: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stored_item_ids(reply)))[:MOST_ITEMS] if api.is_stored(reply) else ()


def _output(assembler: Assembler, api: HttpApi, accepted: CallAccepted, ended: CallEnded) -> ModelOutput:
    output = assembler.output(
        at=datetime.fromtimestamp(ended.at, UTC),
        latency=max(0.0, ended.first_byte_at - accepted.at) if ended.first_byte_at else None,
        duration=max(0.0, ended.at - accepted.at),
    )
    headers = ((name.lower(), value) for name, value in ended.response_headers)
    request_id = next((value for name, value in headers if name in api.request_id_headers), "")
    return replace(output, usage=None, request_id=request_id or output.request_id)


def _usage(assembler: Assembler, accepted: CallAccepted, ended: CallEnded, body: bytes) -> Usage | None:
    """A call that was counted when it ended keeps that number, because its limits know that one."""
    hinted = _hinted_usage(ended)
    if hinted is not None and ended.is_counted:
        return replace(hinted, raw=assembler.usage.raw) if assembler.usage else hinted
    by_size = hinted or _estimated_usage(accepted, ended, body)
    return usage_of_answer(assembler, request_size=accepted.body_size, by_size=by_size)


def _estimated_usage(accepted: CallAccepted, ended: CallEnded, body: bytes) -> Usage | None:
    """For a call that was not counted when it ended, and of which the vendor says nothing either."""
    if ended.is_counted or ended.status >= 400 or not ended.reply_size:
        return None
    size = len(body) if body and not ended.lost_bytes else ended.reply_size
    return estimate_usage(accepted.body_size, reply_size=size, is_stream=is_streamed(body))


def _hinted_usage(ended: CallEnded) -> Usage | None:
    hint, source = ended.usage_hint, ended.usage_hint.get("source")
    counts = {name: hint[name] for name in COUNTS if isinstance(hint.get(name), int)}
    if not any(counts.values()):
        return None
    return Usage(**counts, source=source if source in ("provider", "partial") else "estimated")


# Prefills: a request may end with the beginning of its answer. Where the client wrote that ("The answer is ("), its
# next request has the two as one answer, so they are stored as one. Where the record knows it (a paused turn, an
# answer that was cut at its limit), the rest follows it as its own entry.


def answer_to(call: PendingCall, ended: CallEnded) -> RecordedAnswer:
    answer = call.answer or RecordedAnswer(reason=ended.reason)
    if not call.request.is_prefilled or answer.output is None:
        return answer
    others = tuple(_with_prefill(call.request, other) for other in answer.others)
    return replace(answer, output=_with_prefill(call.request, answer.output), others=others, rest=answer.output)


def prefill_length(request: RelayedRequest) -> int:
    return len(request.unfinished.text) if request.unfinished else 0


def _with_prefill(request: RelayedRequest, rest: ModelOutput) -> ModelOutput:
    prefill = request.unfinished
    beginning = prefill.text.strip() if prefill else ""
    # Not every vendor continues a prefill: some repeat it.
    is_repeated = not request.api.continues_prefills and rest.text.lstrip().startswith(beginning)
    parts = rest.parts if is_repeated else join_parts(prefill.parts if prefill else (), rest.parts)
    return replace(rest, parts=parts, metadata={**rest.metadata, PREFILLED: prefill_length(request)})


def join_parts(prefill: Sequence[Part], rest: Sequence[Part]) -> tuple[Part, ...]:
    """One text, as clients put the two together. The reasoning before the rest comes first."""
    reasoning = [part for part in rest if isinstance(part, Reasoning)]
    content = [part for part in rest if not isinstance(part, Reasoning)]
    *before, last = prefill
    if content and isinstance(content[0], Text) and isinstance(last, Text):
        return (*reasoning, *before, replace(content[0], text=last.text + content[0].text), *content[1:])
    return (*reasoning, *prefill, *content)
