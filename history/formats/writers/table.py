"""CSV export: one row per message and one per tool call.

Spreadsheets run a cell that begins with = + - @ as a formula; such cells get an apostrophe in front, which spreadsheets
do not show. The byte order mark tells Excel that this is UTF-8.
"""

import csv
from collections.abc import Iterator
from io import StringIO
from typing import Any

from history.db.packing import clean
from history.entries import JsonDict, ModelInput, ModelOutput
from history.formats.base import Notes
from history.formats.writers.path import entries_on_path, note_parts
from history.models import Session

COLUMNS = (
    "session", "title", "owner", "source", "seq", "time", "kind", "role", "agent", "provider", "model", "status",
    "input_tokens", "output_tokens", "latency", "duration", "tool", "call_id", "arguments", "text", "error",
)  # fmt: skip
OF_ANSWERS = ("provider", "model", "status", "latency", "duration", "error")
OF_USAGE = ("input_tokens", "output_tokens")
OF_RESULTS = ("text", "error", "duration")
RISKY = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def write(session: Session, notes: Notes) -> Iterator[bytes]:
    owner = session.owner.get_username()
    common = {"session": session.pk, "title": session.title, "owner": owner, "source": session.source}
    for exported in entries_on_path(session, notes):
        entry = exported.entry
        if isinstance(entry, ModelInput | ModelOutput):
            note_parts(entry.parts, notes, exported.place)
        row = {**common, "seq": exported.seq, "time": entry.at.isoformat(), "kind": entry.kind, "role": entry.role}
        answer: JsonDict = {}
        if isinstance(entry, ModelOutput):
            answer = {name: getattr(entry, name) for name in OF_ANSWERS}
            answer |= {name: getattr(entry.usage, name) for name in OF_USAGE} if entry.usage else {}
        yield line({**row, "agent": entry.agent, "text": entry.text, **answer})
        for call in exported.calls:
            row |= {"kind": "tool_call", "role": "tool", "tool": call.request.name, "call_id": call.request.call_id}
            row |= {"arguments": call.request.arguments, "status": call.status}
            result = {name: getattr(call.result, name) for name in OF_RESULTS} if call.result else {}
            yield line({**row, **result})


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
