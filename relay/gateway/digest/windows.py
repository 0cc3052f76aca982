"""Clients that send the newest turns alone (NextChat, Cherry Studio, LangChain's windows): what they leave out is in
the record, and they go on after it.

Such a request has a beginning that nobody knows, but all of it up to its newest answer is the end of a conversation: of
the one that it names, or of one of those of the key that went on last. The chain over it is then made to go on from
what stands there before it. Where anything in between differs, it is no such request, and stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db.models import F

from history import fingerprints
from history.dialects.vocabulary import Said
from history.entries import LEAVES, ModelOutput
from history.models import Message, Session
from relay.gateway.digest.reading import Asked
from relay.gateway.digest.recognising import Spot

# Its conversation is looked for among so many of the key, the newest; within so many of the newest entries.
MOST_RECENT, RECENTLY = 20, timedelta(days=1)
NEAR_THE_END = 12
# No window is longer; who sends more sends all.
MOST_SENT = 400


def gone_on_from(asked: Asked, spot: Spot) -> Asked | None:
    """The request with the chain that it would have if it were whole; None where it is no end of a conversation."""
    said = _up_to_newest_answer(asked)
    if spot.known or not 2 <= len(said) <= MOST_SENT:
        return None
    candidates = _candidates(asked, spot)
    # Of a reply that was not kept, or came back as another, what it answers is the end.
    for end in filter(_has_answer, (said, said[:-1])):
        for session, place in _ends_that_fit(asked, end, candidates):
            before = _before(asked, end, session, place)
            if before is not None:
                return asked.chained_after(before)
    return None


def _up_to_newest_answer(asked: Asked) -> list[Said]:
    """What of it says something to the other side."""
    last = asked.last_answer
    until = 0 if last is None else last + 1
    return [entry for entry in asked.entries[:until] if fingerprints.essence_of(entry) is not None]


def _has_answer(said: Sequence[Said]) -> bool:
    """As in any beginning that counts; and what it answers."""
    return len(said) > 1 and any(isinstance(entry, ModelOutput) for entry in said)


def _candidates(asked: Asked, spot: Spot) -> list[UUID]:
    if spot.session_id is not None:
        return [spot.session_id] if spot.session is not None else []
    recent = Session.objects.filter(
        api_key_id=asked.record.key,
        hidden_at=None,
        forked_from=None,
        last_activity_at__gte=asked.at - RECENTLY,
    )
    return list(recent.order_by("-last_activity_at", "-pk").values_list("pk", flat=True)[:MOST_RECENT])


def _ends_that_fit(asked: Asked, said: Sequence[Said], ids: Sequence[UUID]) -> list[tuple[UUID, int]]:
    """Where the last of this stands near the end of a path: the session and the entry, the newest first."""
    near = Message.objects.filter(session_id__in=ids, on_path=True, seq__gt=F("session__head") - NEAR_THE_END)
    columns = ("session_id", "seq", "parent_seq", "kind", "fingerprint")
    rows = list(near.exclude(kind__in=LEAVES).values_list(*columns))
    marks = {(session, seq): bytes(mark) for session, seq, _, _, mark in rows}
    found = [
        (session, seq)
        for session, seq, parent, kind, _ in rows
        if kind == said[-1].kind
        and (before := marks.get((session, parent))) is not None
        and asked.mark(said[-1], after=before) == marks[session, seq]
    ]
    return sorted(found, key=lambda one: (ids.index(one[0]), -one[1]))


def _before(asked: Asked, said: Sequence[Said], session: UUID, place: int) -> bytes | None:
    """The mark of what stands before all this on the path that ends there; None where the path says another thing."""
    rows = Message.objects.filter(session_id=session, on_path=True, seq__lte=place).exclude(kind__in=LEAVES)
    marks: list[bytes] = []
    # Instructions, tools and reminders leave the chain where it is.
    for mark in rows.order_by("-seq").values_list("fingerprint", flat=True)[: 3 * len(said) + NEAR_THE_END]:
        if not marks or bytes(mark) != marks[-1]:
            marks.append(bytes(mark))
    if len(marks) <= len(said):
        return None
    fits = (asked.mark(entry, after=marks[back + 1]) == marks[back] for back, entry in enumerate(reversed(said)))
    return marks[len(said)] if all(fits) else None
