"""Answers that a client does not send back but names, item by item (`item_reference`), because their vendor keeps them.

The Vercel AI SDK does so by itself. The newest one whose name was given to the same key tells which answer that is, and
the chain goes on from there; whatever stands before it is in the record as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from history.dialects.openai_responses.replies import DIALECT
from history.entries import ModelOutput, OtherPart
from history.models import Message
from relay.digest.requests import RelayedRequest
from relay.gateway.references.issued_ids import stored_item_ids
from relay.models import NamedReply

REFERENCE = "item_reference"
_NOT_KEPT = re.compile(rb'"store"\s*:\s*false')
MOST_NAMES = 50


def items_in(reply: bytes) -> list[str]:
    """The names of the items of a reply, if its vendor keeps them."""
    if _NOT_KEPT.search(reply):
        return []
    return list(dict.fromkeys(stored_item_ids(reply)))[:MOST_NAMES]


def resolved(asked: RelayedRequest) -> RelayedRequest:
    """With the chain as it would be if the newest answer that is only named had been sent."""
    named = dict(_named(asked)) if asked.record.dialect == DIALECT else {}
    if not named:
        return asked
    known = NamedReply.objects.filter(key_id=asked.record.key, name__in=list(named)[-MOST_NAMES:])
    best = max(known, key=lambda reply: named[reply.name], default=None)
    if best is None:
        return asked
    rows = Message.objects.at(best.session_id, best.seq).filter(session__hidden_at=None)
    mark = rows.values_list("fingerprint", flat=True).first()
    return asked if mark is None else asked.chained_from(named[best.name], bytes(mark))


def _named(asked: RelayedRequest) -> Iterator[tuple[str, int]]:
    for place, entry in enumerate(asked.entries):
        for part in entry.parts if isinstance(entry, ModelOutput) else ():
            if isinstance(part, OtherPart) and part.data.get("type") == REFERENCE:
                yield str(part.data.get("id", "")), place
