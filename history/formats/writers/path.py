"""Entries on the path of a session, with tool results beside their calls."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from history.dialects import tools
from history.entries.kinds import CONVERSATION, Entry, Gap, ModelOutput, Node, ToolResults
from history.entries.values import JsonDict, JsonObject, Media, Part, Reasoning, ToolRequest, ToolResult
from history.formats.base import Notes
from history.models import Message, Session
from history.record import paths
from history.record.loading import read_nodes
from history.record.projections import pair_results
from history.text.lazy import LazyText, gettext_noop
from history.transcripts.previews import find_unrecorded_answer

PAGE = 50


@dataclass(frozen=True, slots=True)
class ExportedCall:
    request: ToolRequest
    result: ToolResult | None
    is_cut_off: bool
    started_at: datetime

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
    place: str  # for notes
    entry: Entry
    calls: tuple[ExportedCall, ...] = ()


def entries_on_path(session: Session, notes: Notes, *, with_unrecorded: bool = False) -> Iterator[ExportedEntry]:
    """Notes branches and dropped texts. `with_unrecorded`: also an unrecorded last answer, for formats people read."""
    note_beside(session, notes)
    asking: Node | None = None  # an answer with calls whose results come next
    between: list[ExportedEntry] = []  # entries between the two
    for node in _nodes_on_path(session):
        entry, place = node.entry, _place(session, node.seq)
        if isinstance(entry, Gap) and entry.metadata.get("dropped"):
            notes("lost", gettext_noop("texts removed by retention rules"), where=place)
        if asking is not None and entry.kind not in CONVERSATION:
            between.append(ExportedEntry(node.seq, place, entry))
            continue
        answer = entry if asking is not None and isinstance(entry, ToolResults) else None
        if asking is not None:
            yield from [_with_results(session, asking, answer), *between]
            asking, between = None, []
        if isinstance(entry, ModelOutput) and entry.tool_requests:
            asking = node
        elif answer is None:
            yield ExportedEntry(node.seq, place, entry)
    if asking is not None:
        yield from [_with_results(session, asking, None), *between]
    if with_unrecorded and (unrecorded := find_unrecorded_answer(session)) is not None:
        yield ExportedEntry(session.head, _place(session, session.head), unrecorded)


def _nodes_on_path(session: Session) -> Iterator[Node]:
    path, last = paths.Path(session.pk), 0
    while page := path.newer_than(last, PAGE, read_nodes):
        yield from page
        last = page[-1].seq


def _place(session: Session, seq: int) -> str:
    return f"{session.pk} #{seq}"


def note_beside(session: Session, notes: Notes) -> None:
    rows = Message.objects.of(session).filter(on_path=False)
    others = rows.filter(seq__gt=session.trimmed_through).possible_parents().count()
    counts = {
        gettext_noop("entries on other branches"): others,
        gettext_noop("notes outside the path"): rows.filter(kind="debug_log").count(),
        gettext_noop("entries that were trimmed before"): int(session.trimmed_through > 0),
    }
    for what, count in counts.items():
        notes("lost", what, where=str(session.pk), count=count)


def _with_results(session: Session, node: Node, answer: ToolResults | None) -> ExportedEntry:
    """Models reuse ids: each result belongs to one call, in the order of the calls."""
    output = node.entry
    assert isinstance(output, ModelOutput)
    results, requests = answer.results if answer else (), output.tool_requests
    paired = pair_results([request.call_id for request in requests], [result.call_id for result in results])
    calls = []
    for request, index in zip(requests, paired, strict=True):
        match = None if index is None else results[index]
        started_at = match.started_at if match is not None and match.started_at else output.at
        calls.append(ExportedCall(request, match, output.status != "complete", started_at))
    return ExportedEntry(node.seq, _place(session, node.seq), output, tuple(calls))


def parse_arguments(request: ToolRequest, notes: Notes) -> JsonDict:
    if (arguments := tools.parse_arguments(request.arguments or "{}")) is not None:
        return arguments
    notes("repaired", gettext_noop("arguments that are not an object were wrapped in one"), where=request.name)
    return {"arguments": request.arguments}


def note_parts(parts: tuple[Part, ...], notes: Notes, place: str, *, reasoning: bool = True) -> None:
    """Note what a format of plain texts leaves out."""
    attachments = sum(isinstance(part, Media) for part in parts)
    notes("lost", gettext_noop("attachments"), where=place, count=attachments)
    thoughts = sum(isinstance(part, Reasoning) for part in parts) if reasoning else 0
    notes("lost", gettext_noop("reasoning"), where=place, count=thoughts)


def note_signature(part: Reasoning, notes: Notes, place: str) -> None:
    count = int(bool(part.signature or part.redacted))
    notes("lost", gettext_noop("signatures of reasoning"), where=place, count=count)


def note_kind(entry: Entry, notes: Notes, place: str) -> None:
    notes("lost", LazyText(gettext_noop("entries of the kind %(kind)s"), kind=entry.kind), where=place)


def to_json(value: JsonObject | Sequence[object], *, indent: int | None = None) -> str:
    """Non-ASCII as it is; lone surrogates, which no encoding can write, escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    has_surrogates = not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
    return json.dumps(value, indent=indent) if has_surrogates else text


def json_document(head: str, messages: Iterable[JsonDict], end: str) -> Iterator[bytes]:
    """A JSON document with a list of messages, one message at a time."""
    yield f'{head}  "messages": ['.encode()
    before = "\n    "
    for message in messages:
        text = to_json(message, indent=2).replace("\n", "\n    ")
        yield f"{before}{text}".encode()
        before = ",\n    "
    closing = "]" if before == "\n    " else "\n  ]"
    yield f"{closing}{end}".encode()


def speaker_name(entry: Entry) -> str:
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
