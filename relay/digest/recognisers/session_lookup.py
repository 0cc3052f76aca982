"""Lookup of stored sessions by id, by API key, and by the instruction and tools that they hold."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db.models import QuerySet

from history.entries import SystemInstructionSet, ToolsOffered
from history.models import Message, Session
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import mark_of_instruction, states_at_head
from relay.gateway.call.session_ids import session_id

# How often an owner may have deleted a session that its client continues under the same name.
MOST_GENERATIONS = 20
# A session that a request does not name is looked for among this many of its key.
MOST_RECENT, RECENT = 20, timedelta(days=1)


def own_session(pk: UUID, *, key: int) -> Session | None:
    return Session.objects.not_hidden().filter(pk=pk, api_key_id=key).first()


def current_session(pk: UUID, *, key: int) -> tuple[UUID, Session | None]:
    """The session of that id. If its owner has deleted it, the session that continues in its place."""
    for generation in range(1, MOST_GENERATIONS):
        session = Session.objects.filter(pk=pk).first()
        if session is None:
            return pk, None
        if session.api_key_id == key and session.hidden_at is None:
            return pk, session
        pk = session_id(f"{pk} {generation}", key=key)
    return pk, None


def recent_sessions(asked: RelayedRequest) -> QuerySet[Session]:
    """The last active sessions of the key, newest first. Forks are left out: the client does not know of them."""
    recent = Session.objects.not_hidden().filter(
        api_key_id=asked.record.key, forked_from=None, last_activity_at__gte=asked.at - RECENT
    )
    return recent.order_by("-last_activity_at", "-pk")[:MOST_RECENT]


def offers_tools(session: Session) -> bool:
    return Message.objects.of(session).filter(kind=ToolsOffered.kind).exists()


def has_other_instruction(asked: RelayedRequest, session: Session) -> bool:
    instruction = asked.request.system if asked.request else ""
    stored = states_at_head(session.pk).get(SystemInstructionSet.kind, "")
    return stored != (mark_of_instruction(instruction) if instruction else "")
