"""Which session a request continues, and after which entry, in the order of docs/relay-recording.md, within one key.

What the call itself says (a header, the client's own id) was read when it was accepted. Here the record is asked: an
answer that the vendor keeps under a name, a cache key, the longest known beginning with an answer in it, and last the
same first words within a while. "hello" alone is nobody's beginning: two people say it every minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from history.entries import ModelInput, ModelOutput, SystemInstructionSet, ToolsOffered
from history.models import Message, Session
from history.record import fingerprints
from relay.digest.calls import Spot
from relay.digest.recognisers import compaction, references
from relay.digest.recognisers.session_lookup import current_session, has_other_instruction, offers_tools, own_session
from relay.digest.requests import RelayedRequest
from relay.gateway.call.session_ids import HEADER, session_id
from relay.models import NamedReply

CLIENT_ID, REPLY, CACHE_KEY = "client id", "previous response", "cache key"
FINGERPRINT, STICKY, NEW = "fingerprint", "sticky", "new"
COMPLETE = "complete"
INSTRUCTIONS = frozenset({SystemInstructionSet.kind, ToolsOffered.kind})
# Most requests add one to three entries to what is known: the newest are looked for first.
NEWEST = 6


@dataclass(frozen=True, slots=True)
class _Match:
    session_id: UUID
    seq: int
    mark: bytes
    kind: str
    created_at: datetime


def recognise(asked: RelayedRequest) -> Spot:
    """The first recogniser that answers decides."""
    asked = references.resolved(asked)
    found = (recogniser(asked) for recogniser in RECOGNISERS)
    is_guess = bool(asked.name("previous_response_id"))
    return next(filter(None, found), Spot(session=None, session_id=None, by=NEW, is_guess=is_guess))


def by_session_id(asked: RelayedRequest) -> Spot | None:
    """The session that the call itself names: by a header, an id of the client or the vendor's conversation."""
    if asked.session is None:
        return None
    pk, session = current_session(asked.session, key=asked.record.key)
    by = asked.record.recognised_by or CLIENT_ID
    if asked.sends_new_alone:
        return _after_named_reply(asked, session, pk=pk, by=by)
    return _in_named_session(asked, session, pk=pk, by=by)


def by_previous_response(asked: RelayedRequest) -> Spot | None:
    """The session of the answer whose id the request names."""
    reply = _named_reply(asked)
    session = own_session(reply.session_id, key=asked.record.key) if reply else None
    return _after(session, reply.seq, by=REPLY) if session and reply else None


def end_of_named_session(asked: RelayedRequest) -> Spot:
    """Where a request goes of which nothing can be read but the name of its session."""
    by = asked.record.recognised_by or NEW
    if asked.session is None:
        return Spot(session=None, session_id=None, by=by)
    pk, session = current_session(asked.session, key=asked.record.key)
    if session is None or not session.version:
        return Spot(session=session, session_id=pk, by=by)
    return _after(session, session.head, by=by)


def _in_named_session(asked: RelayedRequest, session: Session | None, *, pk: UUID, by: str) -> Spot:
    spot = _in_session(asked, session, pk=pk, by=by)
    if session is None or not session.version or asked.first_answer is not None:
        return spot
    if asked.record.recognised_by == HEADER:
        return _appended(asked, session, spot)
    return _begun_again(asked, session, spot)


def _appended(asked: RelayedRequest, session: Session, spot: Spot) -> Spot:
    """The caller chose the session's name and sends no answer: it goes on where the session ends, whatever it resends.

    A question is asked again only if it has no answer yet. With an answer, the same words are said once more: a script
    that asks "continue" each time means a turn each time.
    """
    if not spot.move:
        return spot
    if (question := _unanswered_question(asked, session)) is not None:
        move = "" if question == session.head else "regenerate"
        return replace(spot, after=question, known=len(asked.entries), move=move, answered_at=None)
    end = _after(session, session.head, by=spot.by)
    known = spot.known if spot.known < len(asked.entries) else 0
    return replace(end, known=known, is_appended=True)


def _unanswered_question(asked: RelayedRequest, session: Session) -> int | None:
    """The end of the session, if it is this request and has no answer, or one that failed."""
    rows = Message.objects.on_path(session).filter(seq__lte=session.head).without_leaves()
    columns = ("seq", "kind", "status", "fingerprint")
    end = list(rows.order_by("-seq").values_list(*columns)[: 2 * len(asked.entries) + NEWEST])
    if end and end[0][1] == ModelOutput.kind and end[0][2] != COMPLETE:
        del end[0]
    if not end or end[0][1] == ModelOutput.kind:
        return None
    befores = [*(bytes(row[3]) for row in end[1:]), fingerprints.START]
    is_same = any(asked.chained_after(before).end == bytes(end[0][3]) for before in befores)
    return int(end[0][0]) if is_same else None


def _begun_again(asked: RelayedRequest, session: Session, spot: Spot) -> Spot:
    """A session that a side call has opened, because its first question came late: the question is stored whole, though
    it begins with the same words."""
    is_question = asked.request is not None and bool(asked.request.tools) and spot.known > 0
    if not is_question or offers_tools(session) or not has_other_instruction(asked, session):
        return spot
    return Spot(session=session, session_id=spot.session_id, by=spot.by, move=_why(asked, known=0))


def _named_reply(asked: RelayedRequest) -> NamedReply | None:
    name = asked.name("previous_response_id")
    return NamedReply.objects.filter(key_id=asked.record.key, name=name).first() if name else None


def _after_named_reply(asked: RelayedRequest, session: Session | None, *, pk: UUID, by: str) -> Spot:
    """The vendor keeps what came before. The request continues after the answer that it names, else at the end."""
    reply = _named_reply(asked)
    if session is not None and reply is not None and reply.session_id == session.pk:
        return _after(session, reply.seq, by=by)
    is_guess = bool(asked.name("previous_response_id"))
    if session is None or not session.version:
        return Spot(session=session, session_id=pk, by=by, is_guess=is_guess)
    return replace(_after(session, session.head, by=by), is_guess=is_guess)


def by_cache_key(asked: RelayedRequest) -> Spot | None:
    """Many clients use one cache key for all conversations: it names a session only for requests that continue it."""
    name = asked.name("prompt_cache_key")
    if not name:
        return None
    pk, session = current_session(session_id(f"cache key {name}", key=asked.record.key), key=asked.record.key)
    if session is None or not session.version:
        return Spot(session=session, session_id=pk, by=CACHE_KEY) if asked.first_answer is None else None
    spot = _in_session(asked, session, pk=pk, by=CACHE_KEY)
    return spot if spot.known and asked.first_answer is not None and spot.known > asked.first_answer else None


# Places in a session.


def _in_session(asked: RelayedRequest, session: Session | None, *, pk: UUID, by: str) -> Spot:
    if session is None or not session.version:
        return Spot(session=session, session_id=pk, by=by)
    if _is_at_head(asked, session):
        return _at_head(asked, session, by=by)
    match = _longest(asked, range(len(asked.chain)), session=session)
    if match is None:
        return Spot(session=session, session_id=pk, by=by, move=_why(asked, known=0))
    return _at(asked, session, match, by=by)


def _is_at_head(asked: RelayedRequest, session: Session) -> bool:
    """Whether all that the client says after what we saw last is new. An answer in it may be one that we know: the head
    goes back when an answer is asked for again, and then nothing may come of that."""
    head, last = session.head_fingerprint, asked.last_answer
    return bool(head) and head in (asked.chain if last is None else asked.chain[last:])


def _at_head(asked: RelayedRequest, session: Session, *, by: str) -> Spot:
    """The usual case: the client has said something more after what we saw last."""
    head = Message.objects.at(session, session.head).values_list("kind", "created_at").first()
    kind, created_at = head or ("", asked.at)
    return _at(asked, session, _Match(session.pk, session.head, session.head_fingerprint, kind, created_at), by=by)


def _at(asked: RelayedRequest, session: Session, match: _Match, *, by: str) -> Spot:
    known = _known(asked, match)
    return Spot(
        session=session,
        session_id=session.pk,
        by=by,
        after=match.seq,
        known=known,
        move="" if match.seq == session.head else _why(asked, known=known),
        answered_at=match.created_at if match.kind == ModelOutput.kind else None,
    )


def _known(asked: RelayedRequest, match: _Match) -> int:
    """How many entries of the request are in the record. Such as say nothing to the other side (a reminder, an
    instruction) leave the chain as it is: they are stored too if the row that was found is one of them."""
    places = [place for place, mark in enumerate(asked.chain) if mark == match.mark]
    if asked.entries[places[0]].kind != match.kind:
        return places[-1] + 1
    stored = _stored_alike(match) if len(places) > 1 and match.kind == ModelInput.kind else 1
    return places[min(stored, len(places)) - 1] + 1


def _stored_alike(match: _Match) -> int:
    """How many inputs in a row, up to the one that was found, leave the chain where it is."""
    count, seq = 0, match.seq
    columns = ("kind", "parent_seq", "fingerprint")
    while row := Message.objects.at(match.session_id, seq).values_list(*columns).first():
        kind, seq, mark = row
        if bytes(mark) != match.mark:
            break
        count += kind == match.kind
    return count


def _after(session: Session, seq: int, *, by: str) -> Spot:
    """The client sends what is new alone: it says, or its vendor knows, what that follows."""
    row = Message.objects.at(session, seq).values_list("kind", "created_at").first()
    kind, created_at = row or ("", None)
    return Spot(
        session=session,
        session_id=session.pk,
        by=by,
        after=seq if row else session.head,
        move="" if row is None or seq == session.head else "edit",
        answered_at=created_at if kind == ModelOutput.kind else None,
    )


def _why(asked: RelayedRequest, *, known: int) -> str:
    """Why a conversation does not go on where it ended."""
    rest = asked.entries[known:]
    if not rest:
        return "regenerate"
    if compaction.is_compacted(rest):
        return "compacted"
    return "edit" if known else "rewritten"


# Fingerprints.


def by_fingerprint(asked: RelayedRequest) -> Spot | None:
    """The session with the longest known beginning of the request, which has to contain an answer."""
    first = asked.first_answer
    match = _longest(asked, range(first, len(asked.chain))) if first is not None else None
    session = own_session(match.session_id, key=asked.record.key) if match else None
    return _at(asked, session, match, by=FINGERPRINT) if session and match else None


def by_compaction(asked: RelayedRequest) -> Spot | None:
    """The session whose beginning a client without ids has replaced by a summary."""
    found = compaction.session_of(asked) if asked.first_answer is not None else None
    session = own_session(found, key=asked.record.key) if found else None
    return _in_session(asked, session, pk=session.pk, by=FINGERPRINT) if session else None


def by_first_message(asked: RelayedRequest) -> Spot | None:
    """A recent session of the key that begins with the same message, for a request whose answers are unknown here."""
    first = next(filter(None, asked.chain), b"")
    ttl = settings.CHAT_HISTORY_STICKY_TTL_SECONDS
    if asked.first_answer is None or not first or not ttl:
        return None
    recent = Session.objects.not_hidden().filter(
        api_key_id=asked.record.key,
        last_activity_at__gte=asked.at - timedelta(seconds=ttl),
        messages__fingerprint=first,
    )
    session = recent.order_by("-last_activity_at", "-pk").first()
    return _in_session(asked, session, pk=session.pk, by=STICKY) if session else None


def _longest(asked: RelayedRequest, places: Sequence[int], *, session: Session | None = None) -> _Match | None:
    newest, older = places[-NEWEST:], places[:-NEWEST]
    return _search(asked, newest, session) or (_search(asked, older, session) if older else None)


def _search(asked: RelayedRequest, places: Iterable[int], session: Session | None) -> _Match | None:
    wanted = {asked.chain[place]: place for place in places if asked.chain[place]}
    if not wanted:
        return None
    # A move of the head has the mark of where it leads to, and nothing can follow it.
    rows = Message.objects.filter(fingerprint__in=list(wanted)).without_leaves()
    rows = rows.filter(session=session) if session else rows.filter(session__hidden_at=None)
    columns = ("fingerprint", "session_id", "seq", "kind", "created_at", "on_path", "session__head")
    found = rows.order_by().values_list(*columns, "session__forked_from_id")
    best = max(found, key=lambda row: _rank(row, wanted), default=None)
    if best is None:
        return None
    mark, session_pk, seq, kind, created_at, *_rest = best
    return _Match(session_pk, seq, bytes(mark), kind, created_at)


def _rank(row: tuple[Any, ...], wanted: dict[bytes, int]) -> tuple[Any, ...]:
    """The longest; in the original rather than in a copy, of which the program knows nothing; where a conversation
    ended rather than where one has gone on already, for two may begin alike; what was said rather than an instruction
    that followed it, which belongs to what was said next; on the path rather than beside it; the newest."""
    mark, _session, seq, kind, created_at, on_path, head, forked_from = row
    return wanted[mark], forked_from is None, seq == head, kind not in INSTRUCTIONS, on_path, created_at, seq


# The order is the algorithm: docs/relay-recording.md describes it.
RECOGNISERS: tuple[Callable[[RelayedRequest], Spot | None], ...] = (
    by_session_id,
    by_previous_response,
    by_cache_key,
    by_fingerprint,
    by_compaction,
    by_first_message,
)
