"""Gemini CLI's recordings: `chats/session-<minute>-<id>.json` in the folder of the project, or a line for each message.

A session that continues is written to the same file under the same id.
"""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256

from history.entries import Gap, JsonDict, Media, ModelInput, ModelOutput, Reasoning, Summary, Text
from history.formats.base import Notes
from history.formats.writers import path
from history.models import Session
from history.record.loading import bytes_of
from history.text.lazy import LazyText, gettext_noop as _

STATUSES = {"success": "success", "failed": "error", "skipped": "cancelled", "interrupted": "cancelled"}
SUBJECT = re.compile(r"\A\*\*(?P<subject>[^*\n]{1,200})\*\*\s*", re.ASCII)


def base_name(session: Session) -> str:
    """In the folder of its project, which is named by a hash of its path."""
    begun = session.created_at.astimezone(UTC).isoformat()[:16].replace(":", "-")
    return f"{project_hash(session)}/chats/session-{begun}-{str(session.pk)[:8]}"


def project_hash(session: Session) -> str:
    known = session.metadata.get("projectHash")
    return known if isinstance(known, str) and known.isalnum() else sha256(session.workspace.encode()).hexdigest()


def write(session: Session, notes: Notes) -> Iterator[bytes]:
    head = path.to_json(_record(session), indent=2).removesuffix("\n}")
    yield from path.json_document(f"{head},\n", _messages(session, notes), "\n}\n")


def write_log(session: Session, notes: Notes) -> Iterator[bytes]:
    yield f"{path.to_json({**_record(session), 'kind': 'main'})}\n".encode()
    for message in _messages(session, notes):
        yield f"{path.to_json(message)}\n".encode()


def utc_text(moment: datetime) -> str:
    """As JavaScript writes times."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _record(session: Session) -> JsonDict:
    record = {
        "sessionId": str(session.pk),
        "projectHash": project_hash(session),
        "startTime": utc_text(session.created_at),
        "lastUpdated": utc_text(session.last_activity_at),
    }
    if session.title:
        record["summary"] = session.title
    return record | ({"directories": [session.workspace]} if session.workspace else {})


def _messages(session: Session, notes: Notes) -> Iterator[JsonDict]:
    for exported in path.entries_on_path(session, notes):
        entry, place = exported.entry, exported.place
        common = {"id": f"{session.pk}-{exported.seq}", "timestamp": utc_text(entry.at)}
        if isinstance(entry, ModelInput):
            yield {**common, "type": "user", "content": _content(entry, notes, place)}
        elif isinstance(entry, ModelOutput):
            yield {**common, "type": "gemini", **_answer(entry, exported.calls, notes, place)}
        elif isinstance(entry, Summary | Gap) and entry.text:
            what = LazyText(_("a %(kind)s was exported as a message of the program"), kind=entry.kind)
            notes("repaired", what, where=place)
            yield {**common, "type": "info", "content": entry.text}
        else:
            path.note_kind(entry, notes, place)


def _content(entry: ModelInput, notes: Notes, place: str) -> list[JsonDict]:
    parts: list[JsonDict] = []
    for part in entry.parts:
        if isinstance(part, Text):
            parts.append({"text": part.text})
        elif isinstance(part, Media) and part.url:
            parts.append({"fileData": {"mimeType": part.media_type, "fileUri": part.url}})
        elif isinstance(part, Media):
            try:
                data = base64.b64encode(bytes_of(part.sha256)).decode()
                parts.append({"inlineData": {"mimeType": part.media_type, "data": data}})
            except LookupError:
                notes("lost", _("attachments without data"), where=place)
        else:
            notes("lost", _("parts of other providers"), where=place)
    return parts


def _answer(entry: ModelOutput, calls: tuple[path.ExportedCall, ...], notes: Notes, place: str) -> JsonDict:
    path.note_parts(entry.parts, notes, place, reasoning=False)
    if entry.status != "complete":
        notes("lost", _("status of answers that were cut off or failed"), where=place)
    message: JsonDict = {"content": entry.text}
    for part in entry.parts:
        if isinstance(part, Reasoning):
            path.note_signature(part, notes, place)
            match = SUBJECT.match(part.text)
            subject, description = (match["subject"], part.text[match.end() :]) if match else ("", part.text)
            thought = {"subject": subject, "description": description, "timestamp": utc_text(entry.at)}
            message.setdefault("thoughts", []).append(thought)
    if calls:
        message["toolCalls"] = [_call(call, notes, place) for call in calls]
    if (usage := entry.usage) is not None:
        thoughts = min(usage.reasoning_tokens, usage.output_tokens)
        message["tokens"] = {
            "input": usage.input_tokens,
            "output": usage.output_tokens - thoughts,
            "cached": usage.cache_read_tokens,
            "thoughts": thoughts,
            "tool": 0,
            "total": usage.input_tokens + usage.output_tokens,
        }
    return message | ({"model": entry.model} if entry.model else {})


def _call(call: path.ExportedCall, notes: Notes, place: str) -> JsonDict:
    request, result = call.request, call.result
    message: JsonDict = {"id": request.call_id, "name": request.name, "args": path.parse_arguments(request, notes)}
    if result is not None:
        path.note_parts(result.parts, notes, place)
        key = "error" if result.status == "failed" else "output"
        response = {"id": request.call_id, "name": request.name, "response": {key: call.outcome}}
        message |= {"result": [{"functionResponse": response}], "resultDisplay": call.outcome}
    return message | {"status": STATUSES.get(call.status, "cancelled"), "timestamp": utc_text(call.started_at)}
