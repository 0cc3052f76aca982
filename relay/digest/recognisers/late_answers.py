"""Answers that a client has sent back before they were filed: another digester gave up waiting and stored its copy.

The exchange then refers to the copy. An answer that has something which the copy lacks becomes a branch beside it.
"""

import time
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from history.entries import ModelOutput, Part, Text, ToolRequest
from history.models import Message, Session
from history.record import exchanges
from history.record.loading import entries_of
from relay.digest.answers import DONE, answer_to
from relay.digest.calls import WAIT_SECONDS, AnswerCopy, PendingCall, RecordedAnswer
from relay.gateway.journal.records import Ended

CLOCKS_DIFFER = timedelta(seconds=2)  # between two hosts


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


def _is_late(call: PendingCall, ended: Ended) -> bool:
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
