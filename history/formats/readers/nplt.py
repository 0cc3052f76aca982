"""The session files of the NPLT server: `session_YYYYMMDD_<id>.json`, one conversation each.

Calls and their results are on the message after them: three entries here (calls, results, text).
"""

from collections.abc import Iterator
from datetime import datetime

from history.dialects.json_access import as_float, compact, obj, objs, string
from history.entries.kinds import Entry, ModelInput, ModelOutput, SystemInstructionSet, ToolResults
from history.entries.values import JsonObject, ResultStatus, Text, ToolRequest, ToolResult
from history.formats.base import Conversation, FormatError, Notes, chain_id
from history.formats.conversations import CHANNEL, ConversationReader, instruction, parse_time
from history.formats.sources import Reader, Sample, Source
from history.text.lazy import gettext_noop as _

STATUSES: dict[str, ResultStatus] = {
    **{"success": "success", "completed": "success", "ok": "success"},
    **{"failed": "failed", "error": "failed", "failure": "failed"},
    **{"skipped": "skipped", "cancelled": "interrupted", "interrupted": "interrupted", "timeout": "interrupted"},
}


def recognises(sample: Sample) -> bool:
    record = sample.first
    return (
        sample.shape == "object"
        and isinstance(record.get("session_id"), str)
        and isinstance(record.get("messages"), list)
        and "created_at" in record
    )


def read(source: Source) -> Iterator[Conversation]:
    record = obj(source.document())
    session_id = string(record.get("session_id"))
    if not session_id:
        raise FormatError(_("the file has no session_id"))
    reader, last, parent = ConversationReader("NPLT", start=record.get("created_at")), "", ""
    for message in objs(record.get("messages")):
        last = chain_id(last, compact(message))
        at, is_first = reader.entry_time(message.get("timestamp")), not reader.tree.items
        for suffix, entry in _entries(message, last, at, is_first, reader.notes):
            parent = reader.tree.add(f"{last}{suffix}", entry, parent=parent)
    yield reader.conversation(session_id)


def _entries(message: JsonObject, name: str, at: datetime, is_first: bool, notes: Notes) -> Iterator[tuple[str, Entry]]:
    text, metadata = _text(message.get("content")), obj(message.get("metadata"))
    parts = (Text(text=text),) if text else ()
    match message.get("role"):
        case "assistant":
            calls = objs(message.get("tool_calls"))
            requests = tuple(
                ToolRequest(
                    call_id=f"call_{name[:12]}_{place}",
                    name=string(call.get("tool_name")) or "unknown",
                    arguments=_text(call.get("arguments")) or "{}",
                )
                for place, call in enumerate(calls, 1)
            )
            if requests:
                yield "/calls", ModelOutput(at=at, parts=requests)
                pairs = zip(calls, requests, strict=True)
                yield "/results", ToolResults(at=at, results=tuple(_result(call, request) for call, request in pairs))
            if parts or not requests:
                yield "", ModelOutput(at=at, parts=parts, metadata=metadata)
        case "system" if is_first:
            yield "", SystemInstructionSet(at=at, instruction=text, metadata=metadata)
        case "system":
            yield "", instruction(text, at=at)
        case role:
            if role != "user":
                notes("repaired", _("Messages with an unknown role were imported as the user’s."), where=str(role))
            yield "", ModelInput(at=at, channel=CHANNEL, parts=parts, metadata=metadata)


def _result(call: JsonObject, request: ToolRequest) -> ToolResult:
    word, text = string(call.get("status")), _text(call.get("result"))
    status = STATUSES.get(word.lower(), "success")
    return ToolResult(
        call_id=request.call_id,
        name=request.name,
        status=status,
        parts=(Text(text=text),) if text else (),
        started_at=parse_time(call.get("timestamp")),
        duration=as_float(call.get("duration")),
        metadata={} if word == status else {"status": word},
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else compact(value)


READER = Reader("nplt", recognises, read)
