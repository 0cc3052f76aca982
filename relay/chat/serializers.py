"""Sessions and messages for programs: plain objects, in the words that programs know."""

from __future__ import annotations

from typing import Any

from history.entries import ModelInput, ModelOutput, SystemInstructionSet, thaw
from history.models import Message, Session, ToolCall
from history.record.selectors import PAGE, messages_of
from history.transcripts.tool_call_json import call_json
from relay.models import QueuedMessage

# What a conversation consists of for a program: results stand with the calls that they answer.
TOLD = (ModelInput.kind, ModelOutput.kind)
MOST = 200


def session_json(session: Session) -> dict[str, Any]:
    return {
        "session_id": str(session.pk),
        "title": session.title,
        "agent": session.agent,
        "model": session.model,
        "source": session.source,
        "message_count": session.message_count,
        "version": session.version,
        "head": session.head,
        "created_at": session.created_at.isoformat(),
        "updated_at": session.last_activity_at.isoformat(),
    }


def queued_json(row: QueuedMessage) -> dict[str, Any]:
    """A message that waits. `is_held`: it is not sent by itself; `error`: why it was refused."""
    return {
        "queued": row.pk,
        "text": row.text,
        "attachment": list(row.attachments),
        "agent": row.agent,
        "model": row.model,
        "after": row.after,
        "is_held": row.held_at is not None,
        "error": row.error or None,
        "created_at": row.created_at.isoformat(),
    }


def history_json(
    session: Session, *, count: int = PAGE, before: int | None = None, leaf: int | None = None
) -> dict[str, Any]:
    """The newest messages, oldest first; `cursor` asks for those before them."""
    page = messages_of(session, limit=min(max(1, count), MOST), before=before, leaf=leaf)
    told = [message for message in page.messages if message.kind in (*TOLD, SystemInstructionSet.kind)]
    return {
        "session_id": str(session.pk),
        "message_count": session.message_count,
        "messages": messages_json(session, told),
        "cursor": page.messages[0].seq if page.messages and page.has_older else None,
    }


def messages_json(session: Session, messages: list[Message]) -> list[dict[str, Any]]:
    asked: dict[int, list[ToolCall]] = {}
    for call in ToolCall.objects.filter(message__in=[message.pk for message in messages]).order_by("message", "index"):
        asked.setdefault(call.message_id, []).append(call)
    return [message_json(message, asked.get(message.pk, [])) for message in messages]


def message_json(message: Message, calls: list[ToolCall]) -> dict[str, Any]:
    facts = {
        "seq": message.seq,
        "parent": message.parent_seq,
        "kind": message.kind,
        "status": message.status,
        "end_reason": message.end_reason,
        "agent": message.agent,
        "provider": message.provider,
        "model": message.model,
        "input_tokens": message.input_tokens,
        "output_tokens": message.output_tokens,
        "duration": message.duration,
        "is_internal": message.is_internal,
        "is_cut": message.content_chars > len(message.content),
    }
    told = {name: value for name, value in facts.items() if value not in ("", None, False)}
    return {
        "role": message.role,
        "content": message.content,
        "timestamp": message.created_at.isoformat(),
        "tool_calls": [call_json(call) for call in calls],
        "metadata": {**told, **thaw(message.metadata)},
    }
