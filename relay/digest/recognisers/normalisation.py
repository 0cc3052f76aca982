"""Requests in the form that the record has: clients send answers in another form, or only the newest turns.

Decision 12 has the reasons. What is still unknown after all readings stays as it came. If the sent turns are the end of
one conversation, the chain continues from the entry before them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import takewhile
from operator import or_
from uuid import UUID

from django.db.models import Q

from history.dialects.tools import call_id_for
from history.dialects.types import ConversationEntry
from history.entries import ModelOutput, Reasoning, Text, ToolRequest, ToolResult, ToolResults
from history.models import Exchange, Message, Session
from history.record import fingerprints
from history.record.fingerprints import is_known_by_id
from history.record.loading import entries_of
from relay.digest.answers import PREFILLED
from relay.digest.calls import SessionMatch
from relay.digest.recognisers.returned_answers import with_stored_form
from relay.digest.recognisers.session_lookup import recent_sessions
from relay.digest.recognisers.sessions import recognise
from relay.digest.requests import RelayedRequest

NormalisedMatch = tuple[RelayedRequest, SessionMatch]
# Pieces of one answer, and answers in one request that have results between their pieces.
MOST_PIECES, MOST_ANSWERS = 32, 64
NEAR_THE_END = 12  # how near to the end of a conversation its newest answer must be, in entries
MOST_SENT = 400  # clients that send more entries send all


def match_normalised(request: RelayedRequest) -> NormalisedMatch:
    """The request in the form of which the record has most, and where that continues."""
    match = recognise(request)
    for read, most, must_help in NORMALISATIONS:
        for _ in range(most):
            if (other := read(request, match)) is None:
                break
            found = recognise(other)
            if must_help and _first_unknown_message(other, found) <= _first_unknown_message(request, match):
                break
            request, match = other, found
    return request, match


def has_unknown_answer(request: RelayedRequest, match: SessionMatch) -> bool:
    """Whether the newest answer that the client sends back is not in the record."""
    last = request.last_answer
    return last is not None and match.known <= last


def is_prefill(request: RelayedRequest, match: SessionMatch) -> bool:
    """Whether the client itself wrote the answer that the request ends with."""
    last = request.unfinished
    if last is None or request.is_prefilled or not isinstance(last.parts[-1], Text):
        return False
    if not all(isinstance(part, (Text, Reasoning)) for part in last.parts):
        return False
    if match.known < len(request.entries):
        return True
    stored = Message.objects.at(match.session, match.after).values_list("metadata", flat=True).first()
    return PREFILLED in (stored or {})


def _with_named_answer(request: RelayedRequest, match: SessionMatch) -> RelayedRequest | None:
    return with_stored_form(request) if has_unknown_answer(request, match) else None


def _with_adjacent_joined(request: RelayedRequest, match: SessionMatch) -> RelayedRequest | None:
    """Some clients send the text of an answer in one message and its calls in another (opencode)."""
    return request.with_adjacent_answers_joined(since=match.known) if has_unknown_answer(request, match) else None


def _first_unknown_message(request: RelayedRequest, match: SessionMatch) -> float:
    """The message of the request with the first entry that the record does not have."""
    places = request.decoded.places if request.decoded else ()
    return places[match.known] if match.known < len(places) else float("inf")


def _with_first_unknown_joined(request: RelayedRequest, match: SessionMatch) -> RelayedRequest | None:
    """Join the pieces of the first unknown answer: some builds of Codex send each result right behind its call."""
    if not has_unknown_answer(request, match):
        return None
    pieces = list(_pieces(request.entries, since=match.known))
    whole = _longest_known(request, pieces)
    if not whole:
        return None
    end = whole[-1] + 1
    if end < len(request.entries) and isinstance(request.entries[end], ToolResults):
        end += 1
    results = [index for index in range(whole[0], end) if index not in whole]
    rest = [[index] for index in range(end, len(request.entries))]
    return request.regrouped([whole, *filter(None, [results]), *rest])


def _pieces(entries: Sequence[ConversationEntry], *, since: int) -> Iterator[int]:
    """The indices of the first unknown answer and of those after it that have only results between them."""
    count = 0
    for index in range(since, len(entries)):
        if isinstance(entries[index], ModelOutput) and count < MOST_PIECES:
            count += 1
            yield index
        elif count and not isinstance(entries[index], ToolResults):
            return


def _longest_known(request: RelayedRequest, pieces: list[int]) -> list[int]:
    if len(pieces) < 2:
        return []
    after = request.before(pieces[0])
    wholes = (pieces[:count] for count in range(2, len(pieces) + 1))
    fingerprints = {request.fingerprint(request.joined(whole), after=after): whole for whole in wholes}
    answers = Message.objects.filter(fingerprint__in=list(fingerprints), kind=ModelOutput.kind)
    rows = answers.filter(session__state=Session.State.OPEN).values_list("fingerprint", flat=True)
    return max((fingerprints[bytes(fingerprint)] for fingerprint in rows), key=len, default=[])


def _with_stored_ids(request: RelayedRequest, match: SessionMatch) -> RelayedRequest | None:
    """With the ids that the record has; None if they are the same or the record has no such answer.

    Gemini and some servers give calls no ids. Parley makes one from the call, but many clients invent another one
    (Gemini CLI, the Vercel AI SDK, pydantic-ai). So calls are paired with the stored ones by position and name. All
    later answers get ids of our own too: a model that gives none rarely begins to.
    """
    if match.session is None:
        return None
    index = match.known - 1
    answer = request.entries[index] if 0 <= index < len(request.entries) else None
    if not isinstance(answer, ModelOutput):
        return None
    later = takewhile(lambda entry: not isinstance(entry, ModelOutput), request.entries[index + 1 :])
    results = [result for entry in later if isinstance(entry, ToolResults) for result in entry.results]
    # An answer that was recognised by the ids of its calls has no others.
    if not results or all(map(is_known_by_id, answer.tool_requests)):
        return None
    rows = list(Message.objects.at(match.session, match.after).filter(kind=ModelOutput.kind))
    stored = [call for entry in entries_of(rows) if isinstance(entry, ModelOutput) for call in entry.tool_requests]
    renames = {index: _renames(answer.tool_requests, stored, results)}
    if not renames[index]:
        return None
    if [call.call_id for call in stored] == _own_ids(stored):
        for place, entry in enumerate(request.entries[index + 1 :], index + 1):
            if isinstance(entry, ModelOutput) and entry.tool_requests:
                ids = (call.call_id for call in entry.tool_requests)
                renames[place] = dict(zip(ids, _own_ids(entry.tool_requests), strict=True))
    return request.with_call_ids(renames)


def _renames(
    sent: Sequence[ToolRequest], stored: Sequence[ToolRequest], results: Sequence[ToolResult]
) -> dict[str, str]:
    """From each id that was sent to that of the first stored call of the same name that has no other."""
    renames: dict[str, str] = {}
    left = [call for call in stored if call.call_id not in {one.call_id for one in sent}]
    known = {call.call_id for call in stored}
    # Some clients put an id into the result alone.
    calls: list[ToolRequest | ToolResult] = [*sent, *results]
    for one in calls:
        if one.call_id in known or one.call_id in renames:
            continue
        found = next((call for call in left if one.name in ("", call.name)), None)
        if found is not None:
            left.remove(found)
            renames[one.call_id] = found.call_id
    return renames


def _own_ids(calls: Sequence[ToolRequest]) -> list[str]:
    ids: list[str] = []
    for call in calls:
        ids.append(call_id_for(call.name, call.arguments, taken=set(ids)))
    return ids


# Each reading tries what the one before has left unknown: so often at most, and only if it must not help or does.
NORMALISATIONS: tuple[tuple[Callable[[RelayedRequest, SessionMatch], RelayedRequest | None], int, bool], ...] = (
    (_with_stored_ids, MOST_ANSWERS, False),
    (_with_named_answer, 1, False),
    (_with_adjacent_joined, 1, True),
    (_with_first_unknown_joined, MOST_ANSWERS, False),
)


def with_omitted_beginning(request: RelayedRequest, match: SessionMatch) -> NormalisedMatch:
    if match.known or not has_unknown_answer(request, match) or (before := _omitted_end(request, match)) is None:
        return request, match
    chained = request.chained_after(before)
    chained = with_stored_form(chained) or chained
    return chained, recognise(chained)


def _omitted_end(request: RelayedRequest, match: SessionMatch) -> bytes | None:
    """The fingerprint of what comes before the request; None if it is not the end of one conversation (decision 12)."""
    until = 0 if request.last_answer is None else request.last_answer + 1
    entries = [entry for entry in request.entries[:until] if fingerprints.fingerprinted_content(entry) is not None]
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
    rows = Message.objects.filter(near, on_path=True).possible_parents().order_by("-seq")
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
    rows = Message.objects.on_path(end.session_id).filter(seq__lte=end.seq).possible_parents().order_by("-seq")
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
