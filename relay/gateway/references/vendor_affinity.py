"""Affinity of stored answers: only the upstream that gave one can continue it.

A process remembers who gave what it has seen pass by. What another process has seen, or one before a restart, is looked
for: each upstream is asked in turn, since one that does not have it says so at once and for nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from relay.gateway.call.calls import Call
from relay.gateway.references import ownership
from relay.gateway.replies.usage import read_ids
from relay.gateway.routing.routes import Upstream

MOST_REMEMBERED = 20_000

_lock = threading.Lock()
_given_by: OrderedDict[tuple[int, str], str] = OrderedDict()


def upstreams_with_answer(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """Of these, those that can go on with the call: all, unless it goes on from something that lies at one of them."""
    name = ownership.continued_id(call) if len(upstreams) > 1 else ""
    if not name:
        return upstreams
    with _lock:
        giver = _given_by.get((call.key.pk, name))
    found = [upstream for upstream in upstreams if upstream.provider.name == giver]
    call.is_looked_for = not found
    return found or upstreams


def note_giver(call: Call, upstream: Upstream, head: bytes) -> None:
    """What a reply calls itself stands at its beginning."""
    if not call.address.api.stores_answers:
        return
    with _lock:
        for name in read_ids(head):
            _given_by[call.key.pk, name] = upstream.provider.name
        while len(_given_by) > MOST_REMEMBERED:
            _given_by.popitem(last=False)


def forget_all() -> None:
    with _lock:
        _given_by.clear()
