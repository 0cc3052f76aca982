"""`session_YYYYMMDD_<id>.json`: a conversation as a list of messages whose calls hold their results.

Calls are on the message after them, so an answer that only calls tools waits for it. Times are UTC without a zone.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from history.context.messages import SYSTEM_CHANNEL
from history.entries import Gap, JsonDict, ModelInput, ModelOutput, Summary, SystemInstructionSet, ToolResults, thaw
from history.formats.base import Notes
from history.formats.writers import path
from history.models import Session
from history.text.lazy import LazyText, gettext_noop as _


def base_name(session: Session) -> str:
    return f"session_{session.created_at.astimezone(UTC):%Y%m%d}_{session.pk}"


def write(session: Session, notes: Notes) -> Iterator[bytes]:
    created, updated = _time(session.created_at), _time(session.last_activity_at)
    end = f',\n  "created_at": "{created}",\n  "updated_at": "{updated}"\n}}\n'
    yield from path.json_document(f'{{\n  "session_id": "{session.pk}",\n', _messages(session, notes), end)


def _messages(session: Session, notes: Notes) -> Iterator[JsonDict]:
    waiting: list[JsonDict] = []  # calls of answers without a text
    asked_at = session.created_at  # the time of the last answer
    for exported in path.entries_on_path(session, notes):
        entry, place = exported.entry, exported.place
        if isinstance(entry, ModelOutput):
            path.note_parts(entry.parts, notes, place)
            waiting += [_call(call, notes, place) for call in exported.calls]
            asked_at = entry.at
            if entry.text:  # the metadata are what the format has no place for, and a reader may want
                more = {"model": entry.model} if entry.model else {}
                more |= {"status": entry.status} if entry.status != "complete" else {}
                yield _message("assistant", entry.text, entry.at, {**thaw(entry.metadata), **more}, waiting)
                waiting = []
        elif isinstance(entry, ModelInput):
            if waiting:
                yield _message("assistant", "", asked_at, {}, waiting)
                waiting = []
            path.note_parts(entry.parts, notes, place)
            role = "system" if entry.channel == SYSTEM_CHANNEL else "user"
            yield _message(role, entry.text, entry.at, thaw(entry.metadata))
        elif isinstance(entry, SystemInstructionSet | Summary | Gap) and entry.text:
            if not isinstance(entry, SystemInstructionSet):
                what = LazyText(_("a %(kind)s was exported as a system message"), kind=entry.kind)
                notes("repaired", what, where=place)
            yield _message("system", entry.text, entry.at, thaw(entry.metadata))
        elif isinstance(entry, ToolResults):
            notes("lost", _("results without a call"), where=place)
        else:
            path.note_kind(entry, notes, place)
    if waiting:
        yield _message("assistant", "", asked_at, {}, waiting)


def _message(role: str, text: str, at: datetime, metadata: object, calls: Sequence[JsonDict] = ()) -> JsonDict:
    return {"role": role, "content": text, "timestamp": _time(at), "tool_calls": [*calls], "metadata": metadata}


def _call(call: path.ExportedCall, notes: Notes, place: str) -> JsonDict:
    result = call.result
    if result is not None:
        path.note_parts(result.parts, notes, place)
    return {
        "tool_name": call.request.name,
        "arguments": path.parse_arguments(call.request, notes),
        "result": call.outcome,
        "status": call.status,
        "duration": float(result.duration or 0) if result is not None else 0.0,
        "timestamp": _time(call.started_at),
    }


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()
