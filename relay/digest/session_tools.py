"""Instruction and tools of a stored session, compared with those of a request."""

from __future__ import annotations

from history.entries import SystemInstructionSet, ToolsOffered
from history.models import Message, Session
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import mark_of_instruction, states_at_head


def offers_tools(session: Session) -> bool:
    return Message.objects.of(session).filter(kind=ToolsOffered.kind).exists()


def has_other_instruction(asked: RelayedRequest, session: Session) -> bool:
    instruction = asked.request.system if asked.request else ""
    stored = states_at_head(session.pk).get(SystemInstructionSet.kind, "")
    return stored != (mark_of_instruction(instruction) if instruction else "")
