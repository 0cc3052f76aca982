"""Answers that a client has sent back before we filed them: somebody gave up waiting for them and stored its copy.

So it may be where several hosts write one record and the journal of one is far behind. Then the exchange is told of
that copy, and the answer is not stored a second time, unless there is something in it that the copy lacks: then it
stands beside it, and the conversation goes on where it went on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from history.entries import ModelOutput, Part, Text, ToolRequest
from history.models import Message
from history.record import exchanges
from history.record.loading import entries_of
from relay.digest.answers import DONE
from relay.digest.calls import WAIT_SECONDS, AnswerCopy, PendingCall, RecordedAnswer
from relay.digest.recognisers.prefills import answer_to
from relay.gateway.journal.records import Ended

# By the clocks of two hosts.
CLOCKS_DIFFER = timedelta(seconds=2)


def copies_of(calls: Iterable[PendingCall]) -> dict[UUID, AnswerCopy]:
    """For calls that have ended so long ago that somebody may have given up waiting for the answer."""
    late = {call.id: (call, answer_to(call, call.ended)) for call in calls if call.ended and _is_late(call, call.ended)}
    awaited = {_mark(call, answer): exchange for exchange, (call, answer) in late.items() if answer.output is not None}
    if not awaited:
        return {}
    # Many programs are told the same: what is older is none of these.
    since = min(call.asked.at for call, _ in late.values()) - CLOCKS_DIFFER
    rows = Message.objects.filter(
        fingerprint__in=list(awaited),
        kind=ModelOutput.kind,
        created_at__gte=since,
        exchange=None,
        session__hidden_at=None,
    )
    found: dict[UUID, AnswerCopy] = {}
    for row in rows.order_by("pk"):
        exchange = awaited[bytes(row.fingerprint)]
        call, answer = late[exchange]
        if row.created_at >= call.asked.at - CLOCKS_DIFFER and _is_where_it_belongs(row, call):
            found[exchange] = AnswerCopy(row.session_id, row.parent_seq, row.seq, row.pk, _is_whole(row, answer))
    return found


def _is_late(call: PendingCall, ended: Ended) -> bool:
    if call.is_given_up or call.asked.side or call.asked.retry or not call.asked.chain:
        return False
    return time.time() - ended.at > WAIT_SECONDS and not (call.filed and call.filed.is_overtaken)


def _mark(call: PendingCall, answer: RecordedAnswer) -> bytes:
    message = exchanges.message_of(answer.output, end_reason=answer.reason) if answer.output else None
    return call.asked.mark(message, after=call.asked.end) if message else b""


def _is_where_it_belongs(row: Message, call: PendingCall) -> bool:
    """In the session where the request was filed before: after the same words, as its mark says."""
    return call.filed is None or call.filed.session_id == row.session_id


def _is_whole(row: Message, answer: RecordedAnswer) -> bool:
    (copy,) = entries_of([row])
    if answer.reason != DONE or answer.others or answer.output is None or not isinstance(copy, ModelOutput):
        return False
    return all(_is_plain(part) or part in copy.parts for part in answer.output.parts)


def _is_plain(part: Part) -> bool:
    """Those are in the mark by which the copy was found."""
    if isinstance(part, Text):
        return not part.extra and "<think>" not in part.text
    return isinstance(part, ToolRequest) and not part.extra
