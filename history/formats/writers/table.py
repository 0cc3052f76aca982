"""CSV export: one row per message and one per tool call.

Spreadsheets run a cell that begins with = + - @ as a formula; such cells get an apostrophe in front, which spreadsheets
do not show. The byte order mark tells Excel that this is UTF-8.
"""

import csv
from collections.abc import Iterator
from io import StringIO
from typing import Any

from history.db.packing import clean
from history.entries import Entry, JsonDict, ModelInput, ModelOutput
from history.formats.base import Notes
from history.formats.writers.path import ExportedCall, entries_on_path, note_parts
from history.models import Session

COLUMNS = (
    "session", "title", "owner", "source", "seq", "time", "kind", "role", "agent", "provider", "model", "status",
    "input_tokens", "output_tokens", "latency", "duration", "tool", "call_id", "arguments", "text", "error",
)  # fmt: skip
RISKY = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def write(session: Session, notes: Notes) -> Iterator[bytes]:
    owner = session.owner.get_username()
    common = {"session": session.pk, "title": session.title, "owner": owner, "source": session.source}
    for exported in entries_on_path(session, notes):
        entry = exported.entry
        if isinstance(entry, ModelInput | ModelOutput):
            note_parts(entry.parts, notes, exported.place)
        row = {**common, "seq": exported.seq, "time": entry.at.isoformat(), "kind": entry.kind, "role": entry.role}
        yield line({**row, "agent": entry.agent, "text": entry.text, **_answer(entry)})
        for call in exported.calls:
            yield line({**row, **_call(call)})


def _answer(entry: Entry) -> JsonDict:
    if not isinstance(entry, ModelOutput):
        return {}
    names, counts = ("provider", "model", "status", "latency", "duration", "error"), ("input_tokens", "output_tokens")
    row = {name: getattr(entry, name) for name in names}
    return row | ({name: getattr(entry.usage, name) for name in counts} if entry.usage else {})


def _call(call: ExportedCall) -> JsonDict:
    request, result = call.request, call.result
    row = {"kind": "tool_call", "role": "tool", "tool": request.name, "call_id": request.call_id}
    row |= {"arguments": request.arguments, "status": call.status}
    if result is None:
        return row
    return {**row, "text": result.text, "error": result.error, "duration": result.duration}


def line(values: JsonDict) -> bytes:
    written = StringIO()
    csv.writer(written).writerow([harmless(values.get(name)) for name in COLUMNS])
    return written.getvalue().encode()


def harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return "" if value is None else value
    text = clean(value)
    return f"'{text}" if text.startswith(RISKY) else text


HEAD = b"\xef\xbb\xbf" + ",".join(COLUMNS).encode() + b"\r\n"
