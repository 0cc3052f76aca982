"""JSON of sessions, messages and tool calls for the command line, the REST API and the socket of programs."""

from typing import Any

from django.db.models import Model
from django.utils import timezone

from history.db.packing import clean_deep
from history.dialects.json_access import parse_json
from history.entries import JsonObject, ModelInput, ModelOutput, SystemInstructionSet, thaw
from history.models import Message, Session, ToolCall
from history.record.selectors import PAGE, messages_of

# Kinds of messages of a conversation: tool results are part of their calls.
CONVERSATION = (ModelInput.kind, ModelOutput.kind, SystemInstructionSet.kind)
MOST = 200


def session_json(session: Session) -> dict[str, Any]:
    """For the socket of programs."""
    return {
        "session_id": str(session.pk),
        **_columns(session, "title", "agent", "model", "source", "message_count", "version", "head"),
        "created_at": session.created_at.isoformat(),
        "updated_at": session.last_activity_at.isoformat(),
    }


def session_details_json(session: Session) -> dict[str, Any]:
    """For the command line: also what retention will do with it."""
    return {
        "id": session.pk,
        "title": session.title,
        "owner": session.owner.get_username(),
        "key": session.api_key.prefix if session.api_key else None,
        **_columns(session, "source", "client", "agent", "workspace", "model"),
        "messages": session.message_count,
        "tool_calls": session.tool_call_count,
        "errors": session.error_count,
        **_columns(session, "input_tokens", "output_tokens", "cost", "version", "head", "trimmed_through"),
        **_columns(session, "created_at", "last_activity_at", "expires_at", "hidden_at", "hold"),
        "state": retention_state(session),
    }


def _columns(row: Model, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def retention_state(session: Session) -> str:
    if session.hold:
        return "held"
    if session.state == Session.State.REMOVING:
        return "being removed"
    if session.state == Session.State.DELETED:
        return "hidden"
    return "expired" if session.expires_at and session.expires_at <= timezone.now() else "kept"


def history_json(
    session: Session, *, count: int = PAGE, before: int | None = None, leaf: int | None = None
) -> dict[str, Any]:
    """The newest messages, oldest first; `cursor` is the position of the page before them."""
    page = messages_of(session, limit=min(max(1, count), MOST), before=before, leaf=leaf)
    messages = [message for message in page.messages if message.kind in CONVERSATION]
    calls = calls_by_message(messages)
    return {
        "session_id": str(session.pk),
        "message_count": session.message_count,
        "messages": [message_json(message, calls.get(message.pk, [])) for message in messages],
        "cursor": page.messages[0].seq if page.messages and page.has_older else None,
    }


def message_json(message: Message, calls: list[ToolCall]) -> dict[str, Any]:
    facts = {
        "seq": message.seq,
        "parent": message.parent_seq,
        **_columns(message, "kind", "status", "end_reason", "agent", "provider", "model"),
        **_columns(message, "input_tokens", "output_tokens", "duration", "is_internal"),
        "is_cut": message.content_chars > len(message.content),
    }
    known = {name: value for name, value in facts.items() if value not in ("", None, False)}
    return {
        "role": message.role,
        "content": message.content,
        "timestamp": message.created_at.isoformat(),
        "tool_calls": [tool_call_json(call) for call in calls],
        "metadata": {**known, **thaw(message.metadata)},
    }


def calls_by_message(messages: list[Message]) -> dict[int, list[ToolCall]]:
    calls: dict[int, list[ToolCall]] = {}
    for call in ToolCall.objects.filter(message__in=[message.pk for message in messages]).order_by("message", "index"):
        calls.setdefault(call.message_id, []).append(call)
    return calls


def tool_call_json(call: ToolCall) -> JsonObject:
    return {
        "id": call.call_id,
        "tool_name": call.name,
        "arguments": arguments_json(call.arguments),
        "result": call.result or call.error,
        "status": call.status,
        "duration": call.duration,
        "timestamp": (call.started_at or call.created_at).isoformat(),
    }


def arguments_json(text: str) -> object:
    """An object if it is one. Arguments that are cut off, too deeply nested or invalid JSON remain a text."""
    try:
        return clean_deep(parse_json(text)) if text else {}
    except ValueError:
        return text
