"""What a call waits for before it is filed: its end, an earlier try, and above all the answer that it goes on from.

That answer may be on its way here or on another host. To wait costs a few seconds, not to wait an answer that is in the
history twice: once as the client sent it back, and once as it came.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from uuid import UUID

from django.db.models import F

from history.entries import ModelOutput
from history.models import Exchange
from relay.digest.calls import WAIT_SECONDS, PendingCall, Spot
from relay.digest.other_hosts import Neighbours
from relay.digest.recognisers.named_side_calls import hold_seconds
from relay.digest.recognisers.retries import is_earlier_try
from relay.digest.requests import words_of


class CallOrder:
    """`under` are the calls under way here; `patience` is how long the end of one is waited for."""

    def __init__(self, under: Mapping[UUID, PendingCall], neighbours: Neighbours, *, patience: float) -> None:
        self.under, self.neighbours, self.patience = under, neighbours, patience

    def may_end_soon(self, call: PendingCall) -> bool:
        return call.ended is None and time.monotonic() - call.seen_at < self.patience

    def has_earlier_try(self, call: PendingCall) -> bool:
        """A try that goes on under way, because nobody has noticed yet that its client is gone, is overtaken."""
        if not call.asked.retry or call.filed:
            return False
        tries = [other for other in self.under.values() if _is_open_try(other, of=call)]
        call.earlier = max(tries, key=lambda other: other.asked.retry).id if tries else None
        return not _is_over(call) and (bool(tries) or self._may_be_elsewhere(call))

    def must_wait(self, call: PendingCall, spot: Spot) -> bool:
        """Whether what it goes on from is probably on its way: then a few seconds are well spent."""
        asked = call.asked
        if spot.session is None and time.monotonic() - call.seen_at < hold_seconds(asked):
            return True
        if _is_over(call):
            return False
        if asked.name("previous_response_id"):
            return spot.is_guess and (self._has_others_of_key(call) or self._may_be_elsewhere(call))
        if asked.sends_new_alone or spot.is_appended:
            return call.rounds < 2 or self._is_open_here(call) or self._may_be_elsewhere(call)
        last = asked.last_answer
        if last is None or spot.known > last:
            return False
        # Files are read one after the other: what came before it may lie in one that was read just too early.
        return call.rounds < 2 or self._has_answer_under_way(call, since=spot.known)

    def _has_answer_under_way(self, call: PendingCall, *, since: int) -> bool:
        asked = call.asked
        awaited = {
            asked.chain[place - 1]
            for place, entry in enumerate(asked.entries)
            if place and place >= since and isinstance(entry, ModelOutput)
        }
        others = [other for other in self.under.values() if other is not call]
        is_here = any(not awaited.isdisjoint(other.asked.ends) for other in others)
        if not is_here and not since:
            # Where the beginning is left out, the chain does not tell what it goes on from.
            is_here = any(_asks_what_was_answered(other, to=call) for other in self._before(call))
        return is_here or self._may_be_elsewhere(call, awaited)

    def _is_open_here(self, call: PendingCall) -> bool:
        """Whether another call of the same conversation was accepted before it and is still being answered."""
        return any(other.asked.session == call.asked.session for other in self._before(call))

    def _before(self, call: PendingCall) -> Iterator[PendingCall]:
        """Those that were accepted before it: of two that look alike, one does not wait."""
        return takewhile(lambda other: other is not call, self.under.values())

    def _has_others_of_key(self, call: PendingCall) -> bool:
        key = call.asked.record.key
        return call.rounds < 2 or any(
            other.asked.record.key == key for other in self.under.values() if other is not call
        )

    def _may_be_elsewhere(self, call: PendingCall, awaited: Collection[bytes] = ()) -> bool:
        """Whether another host may still have it. Once none has, the record is looked at once more: it may have come
        between the look before and the moment that we asked."""
        if call.is_clear or not self.neighbours.are_there:
            return False
        call.is_clear = not (self.neighbours.may_have(before=call.accepted_at) or _is_being_answered(awaited))
        return True


def _is_over(call: PendingCall) -> bool:
    return time.monotonic() - call.seen_at > WAIT_SECONDS


def _is_being_answered(awaited: Collection[bytes]) -> bool:
    """Whether somebody is being answered after one of these entries, on whichever host."""
    after = {"session__messages__fingerprint__in": list(awaited), "session__messages__seq": F("after")}
    return bool(awaited) and Exchange.objects.filter(ended_at=None, **after).exists()


def _asks_what_was_answered(other: PendingCall, *, to: PendingCall) -> bool:
    asked, newest = to.asked, to.asked.last_answer
    if not newest or other.asked.record.key != asked.record.key:
        return False
    return bool(other.asked.asks) and other.asked.asks == words_of(asked.entries[newest - 1])


def _is_open_try(other: PendingCall, *, of: PendingCall) -> bool:
    is_overtaken = other.filed is not None and other.filed.is_overtaken
    return other.ended is None and not is_overtaken and is_earlier_try(other.asked, of=of.asked)


# Within one host: calls of which one gives what the other needs are not filed together.


def needs(call: PendingCall) -> set[object]:
    """What must be in the record before this call is looked at, if another call of the same wave gives it."""
    asked = call.asked
    needed = set(_names(call))
    for place, entry in enumerate(asked.entries):
        if place and isinstance(entry, ModelOutput):
            needed.add(asked.chain[place - 1])
    if (first := asked.first_answer) is not None:
        # Also where a question stands in it that nobody has answered.
        needed.update(asked.ends, asked.chain[first:])
    if asked.name("previous_response_id"):
        needed.add(("replies", asked.record.key))
    if asked.retry:
        needed.add(asked.body_hash)
    if asked.parent is not None and call.filed is None:
        needed.add(asked.parent)
    return needed


def gives(call: PendingCall) -> set[object]:
    given = {*_names(call), *call.asked.ends, call.asked.body_hash}
    return given | {("replies", call.asked.record.key)} if call.asked.record.dialect == "openai-responses" else given


def _names(call: PendingCall) -> Iterator[object]:
    asked = call.asked
    yield from filter(None, [asked.session, call.filed.session_id if call.filed else None])
    if asked.name("prompt_cache_key"):
        yield "cache key", asked.name("prompt_cache_key")
