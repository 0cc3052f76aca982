"""Pending calls: the order in which they are filed, and their recovery by a new digester.

Calls wait for their end, for an earlier try, and for the answer that they continue: else that answer would be in the
history twice, as the client sent it back and as it came. After a restart only the records of pending calls are read
again from the journal. The end in the journal is the true one: the sweeper ended the row because of its silence. Where
nothing is left of a call in a damaged file, its row is ended.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db.models import F

from history.models import Exchange
from history.record import exchanges
from history.record.exchanges import SERVER_LOST
from relay.digest.answers import DAMAGED, PREFILLED
from relay.digest.bodies import largest_record
from relay.digest.calls import WAIT_SECONDS, FiledCall, PendingCall, SessionMatch
from relay.digest.exchange_rows import HELPER
from relay.digest.positions import OtherHosts, ReadPosition
from relay.digest.recognisers.named_side_calls import hold_seconds
from relay.digest.recognisers.retries import is_earlier_try
from relay.digest.requests import start_of_text
from relay.gateway.journal.reader import read
from relay.gateway.journal.record_framing import RecordPosition
from relay.gateway.journal.records import CallAccepted, RecordsLost
from relay.gateway.journal.segments import is_written, names

logger = logging.getLogger(__name__)

Calls = OrderedDict[UUID, PendingCall]
Losses = list[tuple[RecordPosition, RecordsLost]]


class CallOrder:
    """`pending` are the calls of this host in the order of acceptance; `end_wait` is how long to wait for their end."""

    def __init__(self, pending: Mapping[UUID, PendingCall], other_hosts: OtherHosts, *, end_wait: float) -> None:
        self.pending, self.other_hosts, self.end_wait = pending, other_hosts, end_wait

    def may_end_soon(self, call: PendingCall) -> bool:
        return call.ended is None and time.monotonic() - call.seen_at < self.end_wait

    def must_wait_for_try(self, call: PendingCall) -> bool:
        """Whether an earlier try is still pending. One whose client is gone unnoticed is overtaken in the end."""
        if not call.request.retry or call.filed:
            return False
        tries = [other for other in self.pending.values() if _is_open_try(other, of=call)]
        call.earlier = max(tries, key=lambda other: other.request.retry).id if tries else None
        return not _has_waited(call) and (bool(tries) or self._may_be_elsewhere(call))

    def must_wait(self, call: PendingCall, match: SessionMatch) -> bool:
        """Whether the answer that it continues is probably on its way."""
        request = call.request
        if match.session is None and time.monotonic() - call.seen_at < hold_seconds(request):
            return True
        if _has_waited(call):
            return False
        if request.hint("previous_response_id"):
            return match.is_guess and (self._has_others_of_key(call) or self._may_be_elsewhere(call))
        if request.sends_only_new or match.is_appended:
            is_open_here = any(other.request.session == request.session for other in self._before(call))
            return call.rounds < 2 or is_open_here or self._may_be_elsewhere(call)
        last = request.last_answer
        if last is None or match.known > last:
            return False
        # Segments are read one after the other: an earlier record may be in one that was read just too early.
        return call.rounds < 2 or self._is_answer_pending(call, since=match.known)

    def _is_answer_pending(self, call: PendingCall, *, since: int) -> bool:
        awaited = call.request.questions(since=since)
        others = [other for other in self.pending.values() if other is not call]
        is_here = any(not awaited.isdisjoint(other.request.ends) for other in others)
        if not is_here and not since:
            # Where the beginning is left out, the chain does not show what the request continues.
            is_here = any(_has_same_question(other, call) for other in self._before(call))
        return is_here or self._may_be_elsewhere(call, awaited)

    def _before(self, call: PendingCall) -> Iterator[PendingCall]:
        """Calls accepted before it: of two that look alike, one does not wait."""
        return takewhile(lambda other: other is not call, self.pending.values())

    def _has_others_of_key(self, call: PendingCall) -> bool:
        others = (other for other in self.pending.values() if other is not call)
        return call.rounds < 2 or any(other.request.record.key == call.request.record.key for other in others)

    def _may_be_elsewhere(self, call: PendingCall, awaited: Collection[bytes] = ()) -> bool:
        if call.is_clear or not self.other_hosts.exist:
            return False
        # Once no host has, the record is read once more: it may have come between the last look and this question.
        call.is_clear = not (self.other_hosts.may_have(before=call.accepted_at) or _is_being_answered(awaited))
        return True


def _has_waited(call: PendingCall) -> bool:
    return time.monotonic() - call.seen_at > WAIT_SECONDS


def _is_being_answered(awaited: Collection[bytes]) -> bool:
    after = {"session__messages__fingerprint__in": list(awaited), "session__messages__seq": F("after")}
    return bool(awaited) and Exchange.objects.filter(ended_at=None, **after).exists()


def _has_same_question(other: PendingCall, call: PendingCall) -> bool:
    """Whether the other call ends with the question that the newest answer of this one follows."""
    newest = call.request.last_answer
    if not newest or other.request.record.key != call.request.record.key:
        return False
    question = start_of_text(call.request.entries[newest - 1])
    return bool(other.request.last_text) and other.request.last_text == question


def _is_open_try(other: PendingCall, *, of: PendingCall) -> bool:
    is_overtaken = other.filed is not None and other.filed.is_overtaken
    return other.ended is None and not is_overtaken and is_earlier_try(other.request, of=of.request)


# Within one host: two calls of which one provides what the other needs are not filed together.


def required_keys(call: PendingCall) -> set[object]:
    """What must be in the record before this call is planned, if another call of the same batch provides it."""
    request = call.request
    needed = {*_names(call), *request.questions()}
    if (first := request.first_answer) is not None:
        # Also where an unanswered question is among them.
        needed.update(request.ends, request.chain[first:])
    if request.hint("previous_response_id"):
        needed.add(("replies", request.record.key))
    if request.retry:
        needed.add(request.body_hash)
    if request.parent is not None and call.filed is None:
        needed.add(request.parent)
    return needed


def provided_keys(call: PendingCall) -> set[object]:
    request = call.request
    provided = {*_names(call), *request.ends, request.body_hash}
    return provided | {("replies", request.record.key)} if request.api.stores_answers else provided


def _names(call: PendingCall) -> Iterator[object]:
    request = call.request
    yield from filter(None, [request.session, call.filed.session_id if call.filed else None])
    if request.hint("prompt_cache_key"):
        yield "cache key", request.hint("prompt_cache_key")


def recover_calls(folder: Path, position: ReadPosition) -> tuple[Calls, Losses]:
    calls, lost = _read_again(folder, position)
    missing = [exchange for exchange, is_filed in position.filed.items() if is_filed and exchange not in calls]
    for lost_row in Exchange.objects.running().filter(pk__in=missing):
        logger.error("Exchange %s is missing from the journal; its outcome is unknown.", lost_row.pk)
        exchanges.finish(lost_row, None, end_reason=DAMAGED)
    rows = Exchange.objects.in_bulk([exchange for exchange in calls if position.filed[exchange]])
    for exchange, call in list(calls.items()):
        row = rows.get(exchange)
        if row is not None and (row.ended_at is None or row.end_reason == SERVER_LOST):
            _restore(call, row)
        elif row is not None or position.filed[exchange]:  # done, or erased in the meantime
            del calls[exchange]
    return calls, lost


def _restore(call: PendingCall, row: Exchange) -> None:
    call.filed = FiledCall(session_id=row.session_id, after=row.after, attempts=row.attempts - 1, metadata=row.metadata)
    request = call.request.prefilled() if PREFILLED in row.metadata else call.request
    if kind := str(row.metadata.get(HELPER, "")):
        request = request.as_side_call(kind)
    call.request = request.without_body()


def _read_again(folder: Path, position: ReadPosition) -> tuple[Calls, Losses]:
    calls: Calls = OrderedDict()
    lost: Losses = []
    there = [name for name in names(folder) if name in position.start and name in position.to]
    ended = {name for name in there if not is_written(folder / name)}
    records = read(folder, position.start, until=position.to, only=there, ended=ended, most=largest_record())
    for place, record in records:
        if isinstance(record, RecordsLost):
            lost += [(place, record)] if record.is_damage else []
        elif not isinstance(record, CallAccepted):
            if (call := calls.get(record.exchange)) is not None:
                call.add(place, record)
        elif record.exchange in position.filed and settings.CHAT_HISTORY_ENABLED:
            calls[record.exchange] = PendingCall.begin(place, record)
    return calls, lost
