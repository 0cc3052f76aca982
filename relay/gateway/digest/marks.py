"""What the digester remembers of sessions between two requests, so that it need not read it back each time.

Which instruction and which tools hold (by a keyed hash that is kept with their entries), what each tool's result said
when it was first sent, and which children wait for their parent. All of it can be read from the record again; the
memory is only quicker.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.conf import settings

from history import redaction
from history.dialects import DecodedRequest
from history.dialects.loose import compact
from history.dialects.vocabulary import Said
from history.entries import Entry, SystemInstructionSet, ToolResults, ToolsOffered, thawed
from history.models import Message, Session, ToolCall
from history.projections import stored_id

MARK = "mark"
MOST_SESSIONS = 2_000
MOST_RESULTS = 2_000


@dataclass(slots=True)
class Remembered:
    """`results`: call id → mark of the result's text; None until they were looked up."""

    states: dict[str, str] = field(default_factory=dict)
    results: dict[str, bytes] | None = None


class Memory:
    def __init__(self) -> None:
        self._sessions: OrderedDict[UUID, Remembered] = OrderedDict()
        self.orphans: OrderedDict[UUID, list[UUID]] = OrderedDict()  # by the parent that they name

    def of(self, session_id: UUID, *, is_new: bool = False) -> Remembered:
        found = self._sessions.get(session_id)
        if found is None:
            found = Remembered(results={}) if is_new else Remembered(states=_stored_states(session_id))
            self._sessions[session_id] = found
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session_id)
        return found

    def forget_all(self) -> None:
        """What was remembered was not stored after all."""
        self._sessions.clear()
        self.orphans.clear()

    def note_orphan(self, child: UUID, *, parent: UUID) -> None:
        self.orphans.setdefault(parent, []).append(child)
        while len(self.orphans) > MOST_SESSIONS:
            self.orphans.popitem(last=False)


def new_states(request: DecodedRequest, remembered: Remembered, *, at: datetime) -> list[Entry]:
    """The instruction and the tools, where they are not those that hold already."""
    entries: list[Entry] = []
    for entry in _states(request, at=at):
        mark = str(entry.metadata[MARK])
        if remembered.states.get(entry.kind) != mark:
            remembered.states[entry.kind] = mark
            entries.append(entry)
    return entries


def _states(request: DecodedRequest, *, at: datetime) -> Iterable[SystemInstructionSet | ToolsOffered]:
    if request.system:
        mark = {MARK: _mark(request.system).hex()}
        yield SystemInstructionSet(instruction=request.system, at=at, is_internal=True, metadata=mark)
    if request.tools:
        said = compact([[tool.name, tool.description, thawed(tool.parameters)] for tool in request.tools])
        yield ToolsOffered(tools=request.tools, at=at, is_internal=True, metadata={MARK: _mark(said).hex()})


def changed_results(
    known: Sequence[Said], fresh: Sequence[Said], remembered: Remembered, *, session: Session | None
) -> list[str]:
    """The calls whose results a client now tells differently from how it told them first."""
    results = [result for entry in known if isinstance(entry, ToolResults) for result in entry.results]
    if remembered.results is None:
        remembered.results = _stored_results(session, results_of(known)) if session and results else {}
    changed = []
    for result in results:
        mark = _mark(result.text)
        if remembered.results.setdefault(result.call_id, mark) != mark:
            changed.append(result.call_id)
    for call_id, text in results_of(fresh).items():
        remembered.results[call_id] = _mark(text)
    return changed


def results_of(entries: Sequence[Said]) -> dict[str, str]:
    return {
        result.call_id: result.text for entry in entries if isinstance(entry, ToolResults) for result in entry.results
    }


def _stored_results(session: Session, sent: dict[str, str]) -> dict[str, bytes]:
    """After a restart: what is stored is compared as it would be stored, that is, redacted and cut."""
    stored = dict(
        ToolCall.objects.filter(session=session, answered_by__isnull=False)
        .order_by("-pk")
        .values_list("call_id", "result")[:MOST_RESULTS]
    )
    key = session.api_key
    redactors = redaction.redactors_for(key.recording) if key and redaction.stores_bodies(key.recording) else None
    marks: dict[str, bytes] = {}
    for call_id, text in sent.items():
        kept = stored.get(stored_id(call_id))
        if kept is None or redactors is None:
            continue
        told = redaction.redacted_text(text, redactors)[0]
        is_same = told == kept or (len(kept) > 1_000 and told.startswith(kept))
        marks[call_id] = _mark(text) if is_same else b""
    return marks


def _stored_states(session_id: UUID) -> dict[str, str]:
    rows = Message.objects.filter(session_id=session_id, is_state=True).order_by("-seq")
    found: dict[str, str] = {}
    for kind, metadata in rows.values_list("kind", "metadata")[:20]:
        found.setdefault(kind, str(metadata.get(MARK, "")))
    return found


def _mark(text: str) -> bytes:
    said = b"mark:" + text.encode("utf-8", "surrogatepass")
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, said, "sha256")[:12]
