"""Requests without their beginning: clients that send only the newest turns (NextChat, Cherry Studio, LangChain).

Up to its newest answer, such a request is the end of the conversation that it names, or of one of the key's recent
ones. The chain then continues from the entry before it. If anything in between differs, the request stays what it is.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import Q

from history.dialects.types import ConversationEntry
from history.entries import ModelOutput
from history.models import Exchange, Message
from history.record import fingerprints
from relay.digest.calls import SessionMatch
from relay.digest.recognisers.named_replies import with_stored_form
from relay.digest.recognisers.session_lookup import recent_sessions
from relay.digest.recognisers.sessions import recognise
from relay.digest.recognisers.stored_forms import Reading, has_unknown_answer
from relay.digest.requests import RelayedRequest

NEAR_THE_END = 12  # how near to the end of a conversation its newest answer must be, in entries
MOST_SENT = 400  # clients that send more entries send all


def with_omitted_beginning(request: RelayedRequest, match: SessionMatch) -> Reading:
    if match.known or not has_unknown_answer(request, match) or (before := _omitted_end(request, match)) is None:
        return request, match
    chained = request.chained_after(before)
    chained = with_stored_form(chained) or chained
    return chained, recognise(chained)


def _omitted_end(request: RelayedRequest, match: SessionMatch) -> bytes | None:
    """The fingerprint of what comes before the request; None if it is not the end of a conversation.

    Without a name only one conversation may end so ("Thanks" and "You're welcome" end many), and a model was called
    after one of the entries: examples that a program puts before each question are not a conversation.
    """
    until = 0 if request.last_answer is None else request.last_answer + 1
    entries = [entry for entry in request.entries[:until] if fingerprints.essence_of(entry) is not None]
    if not 2 <= len(entries) <= MOST_SENT:
        return None
    rows = _newest_rows(request, match)
    # Where an answer was not kept, or came back as another, the question before it is the end.
    for end in (entries, entries[:-1]):
        if len(end) < 2 or not any(isinstance(entry, ModelOutput) for entry in end):
            continue
        befores: dict[UUID, bytes] = {}
        for session, before in _find_end(request, end, rows, is_named=match.session_id is not None):
            befores.setdefault(session, before)
        if len(befores) == 1:
            return next(iter(befores.values()))
    return None


def _newest_rows(request: RelayedRequest, match: SessionMatch) -> list[Message]:
    """The last entries of every conversation in question, the newest first."""
    if match.session_id is None:
        heads = list(recent_sessions(request).values_list("pk", "head"))
    else:
        heads = [(match.session.pk, match.session.head)] if match.session is not None else []
    if not heads:
        return []
    near = reduce(or_, (Q(session_id=pk, seq__gt=head - NEAR_THE_END) for pk, head in heads))
    rows = Message.objects.filter(near, on_path=True).without_leaves().order_by("-seq")
    return list(rows.only("session", "seq", "parent_seq", "kind", "fingerprint"))


def _find_end(
    request: RelayedRequest, entries: Sequence[ConversationEntry], rows: Sequence[Message], *, is_named: bool
) -> Iterator[tuple[UUID, bytes]]:
    """Sessions with all these entries near the end of the path, and the fingerprint of the entry before them."""
    known = {(row.session_id, row.seq): row.fingerprint for row in rows}
    for row in rows:
        before = known.get((row.session_id, row.parent_seq))
        if row.kind != entries[-1].kind or before is None:
            continue
        if request.fingerprint(entries[-1], after=before) != row.fingerprint:
            continue
        if (found := _before(request, entries, row)) is not None:
            exchanges = Exchange.objects.filter(session=row.session_id, after__range=(found[1], row.seq))
            if is_named or exchanges.exists():
                yield row.session_id, found[0]


def _before(request: RelayedRequest, entries: Sequence[ConversationEntry], end: Message) -> tuple[bytes, int] | None:
    """The fingerprint before these entries on the path, and the seq of the first; None if it has other entries."""
    rows = Message.objects.on_path(end.session_id).filter(seq__lte=end.seq).without_leaves().order_by("-seq")
    stored: list[tuple[bytes, int]] = []
    # Instructions, tools and reminders leave the chain unchanged.
    for fingerprint, seq in rows.values_list("fingerprint", "seq")[: 3 * len(entries) + NEAR_THE_END]:
        if not stored or bytes(fingerprint) != stored[-1][0]:
            stored.append((bytes(fingerprint), seq))
    if len(stored) <= len(entries):
        return None
    pairs = zip(reversed(entries), stored, stored[1:], strict=False)
    if not all(request.fingerprint(entry, after=before) == own for entry, (own, _), (before, _) in pairs):
        return None
    return stored[len(entries)][0], stored[len(entries) - 1][1]
