"""Order of filing: calls wait for their end, for an earlier try, and for the answer that they continue.

Waiting costs a few seconds. Not waiting puts an answer into the history twice: as the client sent it back, and as it
came.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from uuid import UUID

from django.db.models import F

from history.models import Exchange
from relay.digest.calls import WAIT_SECONDS, PendingCall, SessionMatch
from relay.digest.positions import OtherHosts
from relay.digest.recognisers.named_side_calls import hold_seconds
from relay.digest.recognisers.retries import is_earlier_try
from relay.digest.requests import start_of_text


class CallOrder:
    """`pending` are the calls of this host in the order of acceptance; `patience` is how long to wait for their end."""

    def __init__(self, pending: Mapping[UUID, PendingCall], other_hosts: OtherHosts, *, patience: float) -> None:
        self.pending, self.other_hosts, self.patience = pending, other_hosts, patience

    def may_end_soon(self, call: PendingCall) -> bool:
        return call.ended is None and time.monotonic() - call.seen_at < self.patience

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
        """Whether another host may still have it."""
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


def needs(call: PendingCall) -> set[object]:
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


def provides(call: PendingCall) -> set[object]:
    request = call.request
    provided = {*_names(call), *request.ends, request.body_hash}
    return provided | {("replies", request.record.key)} if request.api.stores_answers else provided


def _names(call: PendingCall) -> Iterator[object]:
    request = call.request
    yield from filter(None, [request.session, call.filed.session_id if call.filed else None])
    if request.hint("prompt_cache_key"):
        yield "cache key", request.hint("prompt_cache_key")
