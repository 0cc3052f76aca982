"""Where an answer lies that a vendor keeps: of several upstreams only the one that gave it can go on from it.

A process remembers who gave what it has seen pass by. What another process has seen, or one before a restart, is looked
for: each upstream is asked in turn, since one that does not have it says so at once and for nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from relay.gateway.call.calls import Call
from relay.gateway.limits.reply_usage import names_in
from relay.gateway.references import ownership
from relay.gateway.routing.routes import Upstream

MOST_REMEMBERED = 20_000

_lock = threading.Lock()
_given_by: OrderedDict[tuple[int, str], str] = OrderedDict()


def those_that_have(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """Of these, those that can go on with the call: all, unless it goes on from something that lies at one of them."""
    name = ownership.goes_on(call) if len(upstreams) > 1 else ""
    if not name:
        return upstreams
    with _lock:
        giver = _given_by.get((call.key.pk, name))
    found = [upstream for upstream in upstreams if upstream.provider.name == giver]
    call.is_looked_for = not found
    return found or upstreams


def note(call: Call, upstream: Upstream, head: bytes) -> None:
    """What a reply calls itself stands at its beginning."""
    if not call.address.api.stores_answers:
        return
    with _lock:
        for name in names_in(head):
            _given_by[call.key.pk, name] = upstream.provider.name
        while len(_given_by) > MOST_REMEMBERED:
            _given_by.popitem(last=False)


def forget_all() -> None:
    with _lock:
        _given_by.clear()
