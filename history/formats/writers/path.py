"""Entries on the path of a session, with tool results beside their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _

from history.entries import (
    CONVERSATION,
    Entry,
    Gap,
    Media,
    ModelOutput,
    Node,
    Part,
    Reasoning,
    ToolRequest,
    ToolResult,
    ToolResults,
)
from history.formats.base import Notes, gettext_noop
from history.models import Blob, Message, Session
from history.record import paths
from history.record.loading import read_nodes
from history.transcripts.unrecorded_answers import find_unrecorded_answer

PAGE = 50


@dataclass(frozen=True, slots=True)
class ExportedCall:
    request: ToolRequest
    result: ToolResult | None
    is_cut_off: bool

    @property
    def status(self) -> str:
        if self.result is not None:
            return self.result.status
        return "interrupted" if self.is_cut_off else "pending"

    @property
    def outcome(self) -> str:
        return "" if self.result is None else self.result.text or self.result.error


@dataclass(frozen=True, slots=True)
class ExportedEntry:
    """An entry on the path. Results are with the answer that called; results without a call are separate entries."""

    seq: int
    entry: Entry
    calls: tuple[ExportedCall, ...] = ()


def path_of(session: Session) -> Iterator[Node]:
    """The entries on the path to the head, a page at a time."""
    path, last = paths.Path(session.pk), 0
    while page := path.newer_than(last, PAGE, read_nodes):
        yield from page
        last = page[-1].seq


def entries_on_path(session: Session, notes: Notes) -> Iterator[ExportedEntry]:
    """The same with calls and results together. What stands beside the path, or was dropped, is noted."""
    note_beside(session, notes)
    asking: Node | None = None  # an answer whose calls wait for their results
    between: list[ExportedEntry] = []  # what stands between the two
    for node in path_of(session):
        entry = node.entry
        if isinstance(entry, Gap) and entry.metadata.get("dropped"):
            notes("lost", gettext_noop("texts that were dropped by policy"), where=entry_place(session, node.seq))
        if asking is not None and entry.kind not in CONVERSATION:
            between.append(ExportedEntry(node.seq, entry))
            continue
        answer = entry if asking is not None and isinstance(entry, ToolResults) else None
        if asking is not None:
            yield from [_with_results(asking, answer), *between]
            asking, between = None, []
        if isinstance(entry, ModelOutput) and entry.tool_requests:
            asking = node
        elif answer is None:
            yield ExportedEntry(node.seq, entry)
    if asking is not None:
        yield from [_with_results(asking, None), *between]


def unrecorded_entries(session: Session) -> Iterator[ExportedEntry]:
    """For formats that people read: that the last question was answered, where the answer was not kept."""
    if (answer := find_unrecorded_answer(session)) is not None:
        yield ExportedEntry(session.head, answer)


def note_beside(session: Session, notes: Notes) -> None:
    rows = Message.objects.of(session).filter(on_path=False)
    beside = rows.filter(seq__gt=session.trimmed_through).without_leaves().count()
    notes("lost", gettext_noop("entries on other branches"), where=str(session.pk), count=beside)
    notes(
        "lost",
        gettext_noop("notes beside the path"),
        where=str(session.pk),
        count=rows.filter(kind="debug_log").count(),
    )
    notes(
        "lost",
        gettext_noop("entries that were trimmed before"),
        where=str(session.pk),
        count=int(session.trimmed_through > 0),
    )


def entry_place(session: Session, seq: int) -> str:
    return f"{session.pk} #{seq}"


def _with_results(node: Node, answer: ToolResults | None) -> ExportedEntry:
    """Models reuse ids: each result is given away once, in the order asked."""
    output = node.entry
    assert isinstance(output, ModelOutput)
    waiting = list(answer.results) if answer else []
    calls = []
    for request in output.tool_requests:
        match = next((result for result in waiting if result.call_id == request.call_id), None)
        if match is not None:
            waiting.remove(match)
        calls.append(ExportedCall(request, match, output.status != "complete"))
    return ExportedEntry(node.seq, output, tuple(calls))


# Small things that several formats need.


def arguments_of(request: ToolRequest, notes: Notes) -> dict[str, Any]:
    try:
        value = json.loads(request.arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    notes("repaired", gettext_noop("arguments that are no object were put into one"), where=request.name)
    return {"arguments": request.arguments}


def note_parts(
    parts: tuple[Part, ...], notes: Notes, place: str, *, media: bool = True, reasoning: bool = True
) -> None:
    """What a format of plain texts leaves out."""
    notes(
        "lost", gettext_noop("attachments"), where=place, count=media * sum(isinstance(part, Media) for part in parts)
    )
    notes(
        "lost",
        gettext_noop("reasoning"),
        where=place,
        count=reasoning * sum(isinstance(part, Reasoning) for part in parts),
    )


def bytes_of(sha256: str) -> bytes:
    """The bytes of an attachment; raises LookupError where there are none."""
    found = Blob.objects.filter(pk=sha256).values_list("data", flat=True).first()
    if found is None:
        raise LookupError(sha256)
    return bytes(found)


def utc_text(moment: datetime) -> str:
    """As JavaScript writes times."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_json(value: Mapping[str, Any] | list[Any], *, indent: int | None = None) -> str:
    """Non-ASCII as it is; lone surrogates, which no encoding can write, escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if not _has_halves(text) else json.dumps(value, indent=indent)


def _has_halves(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def indented(text: str, spaces: int) -> str:
    return text.replace("\n", "\n" + " " * spaces)


def speaker_name(entry: Entry) -> str:
    """Who says this; for an answer also which agent, and with which model."""
    if isinstance(entry, ModelOutput):
        return " · ".join(filter(None, [_("Assistant"), entry.agent, entry.model]))
    names = {
        "model_input": _("User"),
        "tool_results": _("Tool results"),
        "system_instruction_set": _("System instruction"),
        "tools_offered": _("Tools offered"),
        "notebook_set": _("Notebook"),
        "plan_set": _("Task plan"),
        "summary": _("Summary"),
        "gap": _("Something is missing here"),
    }
    return names.get(entry.kind, entry.kind.replace("_", " "))
