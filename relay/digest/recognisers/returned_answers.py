"""Answers that clients send back: known by a name, or before they were filed.

A vendor that stores answers lets a client name one (`previous_response_id`) or its items (the Vercel AI SDK) instead of
sending it back. Other forms have a name that is made from their fingerprint: a prefill and its rest come as one text,
as the blocks of one message or as two messages; several texts come back as one; a call of a text tool as a function's.
If another digester has stored the client's copy, the exchange refers to it (docs/relay-recording.md).
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from history.dialects import DIALECTS
from history.dialects.json_access import compact
from history.dialects.tools import INPUT, input_of, parse_arguments
from history.entries import ModelOutput, OtherPart, Part, Text, ToolRequest
from history.models import Message, Session
from history.record import exchanges, fingerprints
from history.record.loading import entries_of
from relay.digest.answers import DONE, MOST_ITEMS, answer_to, join_parts
from relay.digest.calls import WAIT_SECONDS, AnswerCopy, CallPlan, PendingCall, RecordedAnswer
from relay.digest.requests import RelayedRequest
from relay.gateway.journal.records import CallEnded
from relay.models import NamedReply

CLOCKS_DIFFER = timedelta(seconds=2)  # between two hosts


def store_names(plans: Iterable[CallPlan]) -> None:
    replies = [
        NamedReply(name=name[:200], key=plan.key, session_id=plan.session_id, seq=plan.message_seq or plan.after)
        for plan in plans
        if plan.session_id
        for name in _names(plan)
    ]
    if replies:
        NamedReply.objects.bulk_create(replies, ignore_conflicts=True)


def _names(plan: CallPlan) -> Iterator[str]:
    ended, answer = plan.call.ended, plan.answer
    if answer is None:
        return
    has_own_name = ended is not None and not plan.request.side_call
    # An answer that was not kept, for a key that records no replies, has a name too: its question is continued.
    stored = answer.reply_id if plan.message_seq else str(ended.metadata.get("reply_id", "")) if ended else ""
    apis = (dialect.HTTP_API for dialect in DIALECTS.values())
    if has_own_name and any(api.stores_answers and stored.startswith(api.reply_id_prefix) for api in apis):
        yield stored
        if plan.message_seq:
            yield from answer.items
    if not plan.message_seq:
        return
    # The name that the relay gave to a translated answer.
    if has_own_name and ended is not None and (name := str(ended.metadata.get("response_id", ""))):
        yield name
    yield from _prefilled_forms(plan.request, answer)
    yield from _translated_forms(plan.request, answer)


def _prefilled_forms(request: RelayedRequest, answer: RecordedAnswer) -> Iterator[str]:
    """Names of the answer to a request that ends with one, for each way in which the two may come back."""
    prefill, rest = request.unfinished, answer.rest or answer.output
    if prefill is None or rest is None or not rest.parts:
        return
    before = request.sent_chain[-2] if len(request.sent_chain) > 1 else fingerprints.START
    yield _name_of(request.fingerprint(rest, after=request.sent_chain[-1]))
    for parts in ((*prefill.parts, *rest.parts), join_parts(prefill.parts, rest.parts)):
        yield _name_of(request.fingerprint(replace(rest, parts=parts), after=before))


def _translated_forms(request: RelayedRequest, answer: RecordedAnswer) -> Iterator[str]:
    for output in (answer.output, *answer.others):
        if output is None or request.unfinished is not None:
            continue
        parts = _parts_for_client(request, output)
        if parts != output.parts:
            # After what the client sent, and after what the record has: a client may leave the beginning out.
            for end in {request.sent_end, request.end}:
                yield _name_of(request.fingerprint(replace(output, parts=parts), after=end))


def _parts_for_client(request: RelayedRequest, output: ModelOutput) -> tuple[Part, ...]:
    parts = tuple(_with_text_input(part, request.text_tools) for part in output.parts)
    if not request.api.has_single_text or sum(isinstance(part, Text) for part in parts) < 2:
        return parts
    return (Text(text=output.text), *(part for part in parts if isinstance(part, ToolRequest)))


def _with_text_input(part: Part, text_tools: frozenset[str]) -> Part:
    if not isinstance(part, ToolRequest) or part.name not in text_tools:
        return part
    arguments = {INPUT: input_of(part.arguments)}
    return part if parse_arguments(part.arguments) == arguments else replace(part, arguments=compact(arguments))


def _name_of(fingerprint: bytes) -> str:
    """Names of replies are shown, fingerprints are not."""
    return f"as sent {sha256(fingerprint).hexdigest()[:40]}"


# The same request, with the chain that the record has.


def with_stored_form(request: RelayedRequest) -> RelayedRequest | None:
    """From the newest answer on that is known in the form in which it was sent; None if there is none."""
    names = {
        _name_of(fingerprint): index
        for chain in {request.sent_chain, request.chain}
        for index, (entry, fingerprint) in enumerate(zip(request.entries, chain, strict=False))
        if isinstance(entry, ModelOutput)
    }
    return _with_named_answer(request, names, list(names))


def with_referenced_answer(request: RelayedRequest) -> RelayedRequest:
    """As if the newest answer that is only named by its items had been sent."""
    names = {
        request.api.item_id(part.data): index
        for index, entry in enumerate(request.entries)
        for part in (entry.parts if isinstance(entry, ModelOutput) else ())
        if isinstance(part, OtherPart)
    }
    names.pop("", None)
    return _with_named_answer(request, names, list(names)[-MOST_ITEMS:]) or request


def _with_named_answer(request: RelayedRequest, names: dict[str, int], searched: list[str]) -> RelayedRequest | None:
    if not searched:
        return None
    replies = NamedReply.objects.filter(key_id=request.record.key, name__in=searched, session__state=Session.State.OPEN)
    newest = max(replies, key=lambda reply: names[reply.name], default=None)
    if newest is None:
        return None
    stored = Message.objects.at(newest.session_id, newest.seq).values_list("fingerprint", flat=True).first()
    index = names[newest.name]
    if stored is None or request.chain[index] == bytes(stored):
        return None
    return request.with_fingerprint_at(index, bytes(stored))


def find_copies(calls: Iterable[PendingCall]) -> dict[UUID, AnswerCopy]:
    """For calls that ended so long ago that another digester may have given up waiting for the answer."""
    late = {call.id: (call, answer_to(call, call.ended)) for call in calls if call.ended and _is_late(call, call.ended)}
    fingerprints = {
        _fingerprint(call, answer.output, answer.reason): exchange
        for exchange, (call, answer) in late.items()
        if answer.output is not None
    }
    if not fingerprints:
        return {}
    # Many programs get the same answers: older rows are not copies.
    since = min(call.request.at for call, _ in late.values()) - CLOCKS_DIFFER
    rows = Message.objects.filter(fingerprint__in=list(fingerprints), kind=ModelOutput.kind, created_at__gte=since)
    rows = rows.filter(exchange=None, session__state=Session.State.OPEN)
    copies: dict[UUID, AnswerCopy] = {}
    for row in rows.order_by("pk"):
        exchange = fingerprints[row.fingerprint]
        call, answer = late[exchange]
        is_same_session = call.filed is None or call.filed.session_id == row.session_id
        if row.created_at >= call.request.at - CLOCKS_DIFFER and is_same_session:
            copies[exchange] = AnswerCopy(row, _is_complete(row, answer))
    return copies


def _is_late(call: PendingCall, ended: CallEnded) -> bool:
    request = call.request
    if call.is_given_up or request.side_call or request.retry or not request.chain:
        return False
    return time.time() - ended.at > WAIT_SECONDS and not (call.filed and call.filed.is_overtaken)


def _fingerprint(call: PendingCall, output: ModelOutput, reason: str) -> bytes:
    message = exchanges.message_of(output, end_reason=reason)
    return call.request.fingerprint(message, after=call.request.end) if message else b""


def _is_complete(row: Message, answer: RecordedAnswer) -> bool:
    (copy,) = entries_of([row])
    if answer.reason != DONE or answer.others or answer.output is None or not isinstance(copy, ModelOutput):
        return False
    return all(_is_in_fingerprint(part) or part in copy.parts for part in answer.output.parts)


def _is_in_fingerprint(part: Part) -> bool:
    if isinstance(part, Text):
        return not part.extra and "<think>" not in part.text
    return isinstance(part, ToolRequest) and not part.extra
