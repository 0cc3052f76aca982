"""Lookup of stored sessions: by id, API key, instruction, tools, and what is left behind a summary."""

import re
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import QuerySet

from history.db.packing import LONG_TEXT, clean
from history.entries import Entry, ModelInput, ModelOutput, SystemInstructionSet, ToolResults, ToolsOffered
from history.models import Message, Session
from history.record.fingerprints import fingerprinted_content
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import instruction_hash, states_at_head
from relay.gateway.call.session_ids import session_id

MAX_SUCCESSORS = 20  # how often an owner may have deleted a session that its client continues under the same name
# A session that a request does not name is looked for among this many of its key.
MOST_RECENT, RECENT = 20, timedelta(days=1)
# How the summaries begin that programs put in place of a long conversation. People write <summary> too: that one has to
# come first.
_COMPACTED = re.compile(
    r"this session is being continued from a previous conversation|another language model started to solve"
    r"|<state_snapshot>|<conversation_summary>|\A\s*<summary>|\A\s*what did we do so far\?\s*\Z",
    re.IGNORECASE,
)
READ_CHARS = 2_000
SUMMARY_WITHIN = 3  # a summary is among the first entries, behind what a program says about its environment


def own_session(pk: UUID, *, key: int) -> Session | None:
    return Session.objects.open().filter(pk=pk, api_key_id=key).first()


def current_session(pk: UUID, *, key: int) -> tuple[UUID, Session | None]:
    """The session of that id. If its owner has deleted it, the session that continues in its place."""
    for generation in range(1, MAX_SUCCESSORS):
        session = Session.objects.filter(pk=pk).first()
        if session is None:
            return pk, None
        if session.api_key_id == key and session.state == Session.State.OPEN:
            return pk, session
        pk = session_id(f"{pk} {generation}", key=key)
    return pk, None


def recent_sessions(request: RelayedRequest) -> QuerySet[Session]:
    """The last active sessions of the key, newest first. Forks are left out: the client does not know of them."""
    originals = Session.objects.open().filter(api_key_id=request.record.key, forked_from=None)
    recent = originals.filter(last_activity_at__gte=request.at - RECENT)
    return recent.order_by("-last_activity_at", "-pk")[:MOST_RECENT]


def offers_tools(session: Session) -> bool:
    return Message.objects.of(session).filter(kind=ToolsOffered.kind).exists()


def has_other_instruction(request: RelayedRequest, session: Session) -> bool:
    instruction = request.decoded.system if request.decoded else ""
    stored = states_at_head(session.pk).get(SystemInstructionSet.kind, "")
    return stored != (instruction_hash(instruction) if instruction else "")


def is_compacted(entries: Iterable[Entry]) -> bool:
    return any(isinstance(entry, ModelInput) and _COMPACTED.search(entry.text[:READ_CHARS]) for entry in entries)


def compacted_session(request: RelayedRequest) -> UUID | None:
    """The session whose beginning the client has replaced by a summary without naming it."""
    # The newest answer that was kept and what that answers: "Yes." alone is in many sessions.
    kept = _kept_texts(request) if is_compacted(request.entries[:SUMMARY_WITHIN]) else []
    if not kept:
        return None
    ids = list(recent_sessions(request).values_list("pk", flat=True))
    for kind, content in kept:
        rows = Message.objects.filter(session_id__in=ids, kind=kind, on_path=True, content=content)
        ids = list(rows.order_by("-created_at").values_list("session_id", flat=True))
    return ids[0] if ids else None


def _kept_texts(request: RelayedRequest) -> list[tuple[str, str]]:
    """The newest answer with text and the entry before it, each as kind and stored content."""
    answers = (i for i, entry in enumerate(request.entries) if isinstance(entry, ModelOutput) and entry.text)
    newest = max(answers, default=None)
    if newest is None:
        return []
    # Programs shorten long results of tools.
    around = [entry for entry in request.entries[max(newest - 1, 0) : newest + 1] if not isinstance(entry, ToolResults)]
    return [(entry.kind, clean(entry.text)[:LONG_TEXT]) for entry in around if fingerprinted_content(entry) is not None]
