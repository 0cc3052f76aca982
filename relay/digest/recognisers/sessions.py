"""Session recognition: which session of the key a request continues, and after which entry.

`RECOGNISERS` are tried in this order, which docs/relay-recording.md describes. "hello" alone identifies no session: two
people say it every minute.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings

from history.entries import ModelInput, ModelOutput, SystemInstructionSet, ToolsOffered
from history.models import Message, Session
from history.record import fingerprints
from relay.digest.calls import SessionMatch
from relay.digest.recognisers import session_lookup
from relay.digest.recognisers.returned_answers import with_referenced_answer
from relay.digest.recognisers.session_lookup import has_other_instruction, offers_tools
from relay.digest.requests import RelayedRequest
from relay.gateway.call.session_ids import HEADER, session_id
from relay.models import NamedReply

CLIENT_ID, REPLY, CACHE_KEY = "client id", "previous response", "cache key"
FINGERPRINT, STICKY, NEW = "fingerprint", "sticky", "new"
INSTRUCTIONS = frozenset({SystemInstructionSet.kind, ToolsOffered.kind})
NEWEST = 6  # most requests add one to three entries to what is known: the newest are looked up first


class _StoredEntry(NamedTuple):
    fingerprint: bytes
    session_id: UUID
    seq: int
    kind: str
    created_at: datetime
    on_path: bool = True
    session_head: int = 0
    forked_from: UUID | None = None


def recognise(request: RelayedRequest) -> SessionMatch:
    request = with_referenced_answer(request)
    matches = (recogniser(request) for recogniser in RECOGNISERS)
    is_guess = bool(request.hint("previous_response_id"))
    return next(filter(None, matches), SessionMatch(None, None, NEW, is_guess=is_guess))


def by_session_id(request: RelayedRequest) -> SessionMatch | None:
    """The session that the call itself names: by a header, an id of the client or the vendor's conversation."""
    if request.session is None:
        return None
    pk, session = session_lookup.current_session(request.session, key=request.record.key)
    by = request.record.recognised_by or CLIENT_ID
    if request.sends_only_new:
        return _after_named_reply(request, session, pk=pk, by=by)
    match = _in_session(request, session, pk=pk, by=by)
    if session is None or not session.version or request.first_answer is not None:
        return match
    if request.record.recognised_by == HEADER:
        return _at_end(request, session, match)
    # A session that a side call has opened, because its first question came late: the question is stored whole, though
    # it begins with the same words.
    is_question = request.decoded is not None and bool(request.decoded.tools) and match.known > 0
    if not is_question or offers_tools(session) or not has_other_instruction(request, session):
        return match
    return SessionMatch(session, match.session_id, by, move=_move_reason(request, known=0))


def by_previous_response(request: RelayedRequest) -> SessionMatch | None:
    reply = _named_reply(request)
    session = session_lookup.own_session(reply.session_id, key=request.record.key) if reply else None
    return _after(session, reply.seq, by=REPLY) if session and reply else None


def by_cache_key(request: RelayedRequest) -> SessionMatch | None:
    """Many clients use one cache key for all conversations: it names a session only for requests that continue it."""
    name = request.hint("prompt_cache_key")
    if not name:
        return None
    key = request.record.key
    pk, session = session_lookup.current_session(session_id(f"cache key {name}", key=key), key=key)
    if session is None or not session.version:
        return SessionMatch(session, pk, CACHE_KEY) if request.first_answer is None else None
    match = _in_session(request, session, pk=pk, by=CACHE_KEY)
    return match if request.first_answer is not None and match.known > request.first_answer else None


def by_fingerprint(request: RelayedRequest) -> SessionMatch | None:
    """The session with the longest known beginning of the request, which has to contain an answer."""
    first = request.first_answer
    stored = _longest_known(request, range(first, len(request.chain))) if first is not None else None
    session = session_lookup.own_session(stored.session_id, key=request.record.key) if stored else None
    return _at(request, session, stored, by=FINGERPRINT) if session and stored else None


def by_compaction(request: RelayedRequest) -> SessionMatch | None:
    pk = session_lookup.compacted_session(request) if request.first_answer is not None else None
    session = session_lookup.own_session(pk, key=request.record.key) if pk else None
    return _in_session(request, session, pk=session.pk, by=FINGERPRINT) if session else None


def by_first_message(request: RelayedRequest) -> SessionMatch | None:
    """A recent session of the key that begins with the same message, for a request whose answers are unknown here."""
    first = next(filter(None, request.chain), b"")
    ttl = settings.CHAT_HISTORY_STICKY_TTL_SECONDS
    if request.first_answer is None or not first or not ttl:
        return None
    since = request.at - timedelta(seconds=ttl)
    recent = Session.objects.open().filter(api_key_id=request.record.key, last_activity_at__gte=since)
    session = recent.filter(messages__fingerprint=first).order_by("-last_activity_at", "-pk").first()
    return _in_session(request, session, pk=session.pk, by=STICKY) if session else None


RECOGNISERS: tuple[Callable[[RelayedRequest], SessionMatch | None], ...] = (
    by_session_id, by_previous_response, by_cache_key, by_fingerprint, by_compaction, by_first_message
)  # fmt: skip


def end_of_named_session(request: RelayedRequest) -> SessionMatch:
    """For a request that cannot be read: the end of the session that it names."""
    by = request.record.recognised_by or NEW
    if request.session is None:
        return SessionMatch(None, None, by)
    pk, session = session_lookup.current_session(request.session, key=request.record.key)
    return _at_head(session, pk=pk, by=by)


def _at_end(request: RelayedRequest, session: Session, match: SessionMatch) -> SessionMatch:
    """A session that its caller named continues at its end. Repeated words are a new turn, unless unanswered so far."""
    if not match.move:
        return match
    if (question := _unanswered_question(request, session)) is not None:
        move = "" if question == session.head else "regenerate"
        return replace(match, after=question, known=len(request.entries), move=move, answered_at=None)
    known = match.known if match.known < len(request.entries) else 0
    return replace(_after(session, session.head, by=match.by), known=known, is_appended=True)


def _unanswered_question(request: RelayedRequest, session: Session) -> int | None:
    """The end of the session, if it is this request and has no answer, or one that failed."""
    rows = Message.objects.on_path(session).filter(seq__lte=session.head).possible_parents()
    columns = ("seq", "kind", "status", "fingerprint")
    end = list(rows.order_by("-seq").values_list(*columns)[: 2 * len(request.entries) + NEWEST])
    if end and end[0][1] == ModelOutput.kind and end[0][2] != "complete":
        del end[0]
    if not end or end[0][1] == ModelOutput.kind:
        return None
    befores = [*(row[3] for row in end[1:]), fingerprints.START]
    is_same = any(request.chained_after(before).end == end[0][3] for before in befores)
    return int(end[0][0]) if is_same else None


def _named_reply(request: RelayedRequest) -> NamedReply | None:
    name = request.hint("previous_response_id")
    return NamedReply.objects.filter(key_id=request.record.key, name=name).first() if name else None


def _after_named_reply(request: RelayedRequest, session: Session | None, *, pk: UUID, by: str) -> SessionMatch:
    """The vendor keeps what came before. The request continues after the answer that it names, else at the end."""
    reply = _named_reply(request)
    if session is not None and reply is not None and reply.session_id == session.pk:
        return _after(session, reply.seq, by=by)
    return replace(_at_head(session, pk=pk, by=by), is_guess=bool(request.hint("previous_response_id")))


def _at_head(session: Session | None, *, pk: UUID, by: str) -> SessionMatch:
    if session is None or not session.version:
        return SessionMatch(session, pk, by)
    return _after(session, session.head, by=by)


def _in_session(request: RelayedRequest, session: Session | None, *, pk: UUID, by: str) -> SessionMatch:
    if session is None or not session.version:
        return SessionMatch(session, pk, by)
    stored = _known_head(request, session) or _longest_known(request, range(len(request.chain)), session=session)
    if stored is None:
        return SessionMatch(session, pk, by, move=_move_reason(request, known=0))
    return _at(request, session, stored, by=by)


def _known_head(request: RelayedRequest, session: Session) -> _StoredEntry | None:
    """The head, in the usual case: the client adds something to what was seen last."""
    # An answer behind the head may be known: the head goes back when an answer is regenerated, and that may fail.
    fingerprint, last = session.head_fingerprint, request.last_answer
    if not fingerprint or fingerprint not in (request.chain if last is None else request.chain[last:]):
        return None
    head = Message.objects.at(session, session.head).values_list("kind", "created_at").first()
    kind, created_at = head or ("", request.at)
    return _StoredEntry(fingerprint, session.pk, session.head, kind, created_at)


def _at(request: RelayedRequest, session: Session, stored: _StoredEntry, *, by: str) -> SessionMatch:
    known = _count_known(request, stored)
    move = "" if stored.seq == session.head else _move_reason(request, known=known)
    at = stored.created_at if stored.kind == ModelOutput.kind else None
    return SessionMatch(session, session.pk, by, after=stored.seq, known=known, move=move, answered_at=at)


def _count_known(request: RelayedRequest, stored: _StoredEntry) -> int:
    """How many entries of the request are in the record.

    Entries without content for the other side (a reminder, an instruction) leave the chain unchanged. They are stored
    too if the row that was found is one of them.
    """
    indices = [index for index, fingerprint in enumerate(request.chain) if fingerprint == stored.fingerprint]
    if request.entries[indices[0]].kind != stored.kind:
        return indices[-1] + 1
    if len(indices) < 2 or stored.kind != ModelInput.kind:
        return indices[0] + 1
    count, seq = 0, stored.seq
    while row := Message.objects.at(stored.session_id, seq).values_list("kind", "parent_seq", "fingerprint").first():
        kind, seq, fingerprint = row
        if fingerprint != stored.fingerprint:
            break
        count += kind == stored.kind
    return indices[min(count, len(indices)) - 1] + 1


def _after(session: Session, seq: int, *, by: str) -> SessionMatch:
    """For clients that send only what is new, and name what it follows."""
    row = Message.objects.at(session, seq).values_list("kind", "created_at").first()
    if row is None:
        return SessionMatch(session, session.pk, by, after=session.head)
    kind, created_at = row
    move = "" if seq == session.head else "edit"
    at = created_at if kind == ModelOutput.kind else None
    return SessionMatch(session, session.pk, by, after=seq, move=move, answered_at=at)


def _move_reason(request: RelayedRequest, *, known: int) -> str:
    rest = request.entries[known:]
    if not rest:
        return "regenerate"
    if session_lookup.is_compacted(rest):
        return "compacted"
    return "edit" if known else "rewritten"


def _longest_known(
    request: RelayedRequest, indices: Sequence[int], *, session: Session | None = None
) -> _StoredEntry | None:
    return _search(request, indices[-NEWEST:], session) or _search(request, indices[:-NEWEST], session)


def _search(request: RelayedRequest, indices: Iterable[int], session: Session | None) -> _StoredEntry | None:
    wanted = {request.chain[index]: index for index in indices if request.chain[index]}
    if not wanted:
        return None
    # A moved head has the fingerprint of its target, and nothing can follow it.
    rows = Message.objects.filter(fingerprint__in=list(wanted)).possible_parents()
    rows = rows.filter(session=session) if session else rows.filter(session__state=Session.State.OPEN)
    columns = ("fingerprint", "session_id", "seq", "kind", "created_at", "on_path", "session__head")
    values = rows.order_by().values_list(*columns, "session__forked_from_id")
    return max(map(_StoredEntry._make, values), key=lambda stored: _rank(stored, wanted), default=None)


def _rank(row: _StoredEntry, wanted: dict[bytes, int]) -> tuple[int, bool, bool, bool, bool, datetime, int]:
    """The longest beginning first. Then: the original rather than a fork, which the program does not know; the head of
    a conversation rather than its middle, because two may begin alike; content rather than an instruction after it,
    which belongs to the next entry; on the path rather than beside it; the newest.
    """
    is_original, is_head = row.forked_from is None, row.seq == row.session_head
    is_content = row.kind not in INSTRUCTIONS
    return wanted[row.fingerprint], is_original, is_head, is_content, row.on_path, row.created_at, row.seq
