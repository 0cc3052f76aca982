"""Clients that send the newest turns alone (NextChat, Cherry Studio, LangChain's windows): what they leave out is in
the record, and they go on after it.

Such a request has a beginning that nobody knows, but all of it up to its newest answer is the end of a conversation: of
the one that it names, or of one of those of the key that went on last. The chain over it is then made to go on from
what stands there before it. Where anything in between differs, it is no such request, and stays what it is.

Without a name two things more must be so. Something of it was asked here: examples that a program puts before each of
its questions are no conversation. And it is the end of one conversation alone: "Thanks" and "You're welcome" end many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from django.db.models import Q

from history.dialects.types import Said
from history.entries import ModelOutput
from history.models import Exchange, Message
from history.record import fingerprints
from relay.digest.calls import Spot
from relay.digest.recognisers.prefills import as_stored
from relay.digest.recognisers.regrouped_answers import Reading, has_unknown
from relay.digest.recognisers.session_lookup import recent_sessions
from relay.digest.recognisers.sessions import recognise
from relay.digest.requests import RelayedRequest

# So near to where a conversation ended, in entries, must be what such a request goes on from.
NEAR_THE_END = 12
# No window is longer; who sends more sends all.
MOST_SENT = 400

# Of an entry: its session, its number and that of what it follows, its kind and its mark.
End = tuple[UUID, int, int, str, bytes]


def with_omitted_beginning(asked: RelayedRequest, spot: Spot) -> Reading:
    """The request as the end of a conversation, if its newest answer is unknown and it leaves the beginning out."""
    if spot.known or not has_unknown(asked, spot) or (other := gone_on_from(asked, spot)) is None:
        return asked, spot
    other = as_stored(other) or other
    return other, recognise(other)


def gone_on_from(asked: RelayedRequest, spot: Spot) -> RelayedRequest | None:
    """The request with the chain that it would have if it were whole; None where it is no end of a conversation."""
    said = _up_to_newest_answer(asked)
    if not 2 <= len(said) <= MOST_SENT:
        return None
    ends = _ends(asked, spot)
    # Of a reply that was not kept, or came back as another, what it answers is the end.
    for end in filter(_has_answer, (said, said[:-1])):
        found: dict[UUID, bytes] = {}
        for session, before in _fits(asked, end, ends, is_named=spot.session_id is not None):
            found.setdefault(session, before)
        if len(found) == 1:
            return asked.chained_after(*found.values())
    return None


def _up_to_newest_answer(asked: RelayedRequest) -> list[Said]:
    """What of it says something to the other side."""
    last = asked.last_answer
    until = 0 if last is None else last + 1
    return [entry for entry in asked.entries[:until] if fingerprints.essence_of(entry) is not None]


def _has_answer(said: Sequence[Said]) -> bool:
    """As in any beginning that counts; and what it answers."""
    return len(said) > 1 and any(isinstance(entry, ModelOutput) for entry in said)


def _ends(asked: RelayedRequest, spot: Spot) -> list[End]:
    """The last entries of every conversation in question, the newest first."""
    if spot.session_id is None:
        heads = list(recent_sessions(asked).values_list("pk", "head"))
    else:
        heads = [(spot.session.pk, spot.session.head)] if spot.session is not None else []
    if not heads:
        return []
    near = Q()
    for pk, head in heads:
        near |= Q(session_id=pk, seq__gt=head - NEAR_THE_END)
    rows = Message.objects.filter(near, on_path=True).without_leaves()
    columns = ("session_id", "seq", "parent_seq", "kind", "fingerprint")
    return [(*row, bytes(mark)) for *row, mark in rows.order_by("-seq").values_list(*columns)]


def _fits(
    asked: RelayedRequest, said: Sequence[Said], ends: Sequence[End], *, is_named: bool
) -> Iterator[tuple[UUID, bytes]]:
    """Sessions in which all of this stands near the end of the path, and the mark of what stands there before it."""
    marks = {(session, seq): mark for session, seq, _parent, _kind, mark in ends}
    for session, seq, parent, kind, mark in ends:
        before = marks.get((session, parent))
        if kind == said[-1].kind and before is not None and asked.mark(said[-1], after=before) == mark:
            found = _before(asked, said, session, seq)
            if found is not None and (is_named or _was_asked_here(session, since=found[1], until=seq)):
                yield session, found[0]


def _before(asked: RelayedRequest, said: Sequence[Said], session: UUID, place: int) -> tuple[bytes, int] | None:
    """The mark of what stands before all this on the path that ends there, and the number of the first of it; None
    where the path says another thing."""
    rows = Message.objects.on_path(session).filter(seq__lte=place).without_leaves()
    marks: list[tuple[bytes, int]] = []
    # Instructions, tools and reminders leave the chain where it is.
    for mark, seq in rows.order_by("-seq").values_list("fingerprint", "seq")[: 3 * len(said) + NEAR_THE_END]:
        if not marks or bytes(mark) != marks[-1][0]:
            marks.append((bytes(mark), seq))
    if len(marks) <= len(said):
        return None
    pairs = zip(reversed(said), marks, marks[1:], strict=False)
    if not all(asked.mark(entry, after=before) == mark for entry, (mark, _), (before, _) in pairs):
        return None
    return marks[len(said)][0], marks[len(said) - 1][1]


def _was_asked_here(session: UUID, *, since: int, until: int) -> bool:
    """Whether a model was asked after one of these entries: not all of it was only told, as examples are."""
    return Exchange.objects.of(session).filter(after__range=(since, until)).exists()
