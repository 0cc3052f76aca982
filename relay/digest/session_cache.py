"""What the digester remembers of sessions between two requests, so that it need not read it back each time.

Which instruction and which tools hold (by a keyed hash that is kept with their entries), what each tool's result said
when it was first sent, and which children wait for their parent. All of it can be read from the record again; the
memory is only quicker.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from uuid import UUID

from django.conf import settings

from history import redaction
from history.db.bulk import read as read_rows
from history.dialects import DecodedRequest
from history.dialects.json_access import compact
from history.entries import Entry, SystemInstructionSet, ToolResults, ToolsOffered, thaw
from history.models import Message, Session, ToolCall
from history.record.paths import Path
from history.record.projections import stored_id
from relay.digest.requests import RelayedRequest

MARK = "mark"
MOST_SESSIONS = 2_000
MOST_RESULTS = 2_000


Asking = tuple[bytes, str]


@dataclass(slots=True)
class Remembered:
    """`states` hold where the session goes on, as long as it is at this `version`. `results`: a mark of each text by
    the chain up to the answer that asked and the call's id, for models reuse their ids; None until they were looked
    up."""

    states: dict[str, str] = field(default_factory=dict)
    results: dict[Asking, bytes] | None = None
    version: int = 0


class SessionCache:
    def __init__(self) -> None:
        self._sessions: OrderedDict[UUID, Remembered] = OrderedDict()
        self.orphans: OrderedDict[UUID, list[UUID]] = OrderedDict()  # by the parent that they name

    def of(self, session_id: UUID, *, version: int) -> Remembered:
        """`version` is the session's; 0 for a new one. Where somebody else has written to it, his states count."""
        # A program's own id leads to the same name again after its session was removed, which holds nothing yet.
        found = self._sessions.get(session_id) if version else None
        if found is None:
            found = self._sessions[session_id] = Remembered(results=None if version else {})
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        if found.version != version:
            found.states, found.version = states_at_head(session_id), version
        self._sessions.move_to_end(session_id)
        return found

    def note_version(self, session_id: UUID, version: int) -> None:
        """What we have written ourselves is remembered already."""
        if (found := self._sessions.get(session_id)) is not None:
            found.version = version

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
        mark = {MARK: mark_of_instruction(request.system)}
        yield SystemInstructionSet(instruction=request.system, at=at, is_internal=True, metadata=mark)
    if request.tools:
        said = compact([[tool.name, tool.description, thaw(tool.parameters)] for tool in request.tools])
        yield ToolsOffered(tools=request.tools, at=at, is_internal=True, metadata={MARK: _mark(said).hex()})


def mark_of_instruction(instruction: str) -> str:
    return _mark(instruction).hex()


def changed_results(asked: RelayedRequest, remembered: Remembered, *, known: int, session: Session | None) -> list[str]:
    """The calls whose results a client now tells differently from how it told them first."""
    told = results_of(asked, range(known))
    if remembered.results is None:
        remembered.results = _stored_results(session, told) if session and told else {}
    changed = []
    for asking, text in told.items():
        mark = _mark(text)
        if remembered.results.setdefault(asking, mark) != mark:
            changed.append(asking[1])
    for asking, text in results_of(asked, range(known, len(asked.entries))).items():
        remembered.results[asking] = _mark(text)
    return changed


def results_of(asked: RelayedRequest, places: Iterable[int]) -> dict[Asking, str]:
    found: dict[Asking, str] = {}
    for place in places:
        if isinstance(entry := asked.entries[place], ToolResults):
            before = asked.chain[place - 1] if place else b""
            found |= {(before, result.call_id): result.text for result in entry.results}
    return found


def _stored_results(session: Session, sent: dict[Asking, str]) -> dict[Asking, bytes]:
    """After a restart: what is stored is compared as it would be stored, that is, redacted and cut."""
    rows = (
        ToolCall.objects.of(session)
        .filter(answered_by__isnull=False)
        .order_by("-pk")
        .values_list("message__fingerprint", "call_id", "result")[:MOST_RESULTS]
    )
    stored = {(bytes(mark), call_id): result for mark, call_id, result in rows}
    key = session.api_key
    redactors = redaction.redactors_for(key.recording) if key and redaction.stores_bodies(key.recording) else None
    marks: dict[Asking, bytes] = {}
    for (before, call_id), text in sent.items():
        kept = stored.get((before, stored_id(call_id)))
        if kept is None or redactors is None:
            continue
        told = redaction.redacted_text(text, redactors)[0]
        is_same = told == kept or (len(kept) > 1_000 and told.startswith(kept))
        marks[before, call_id] = _mark(text) if is_same else b""
    return marks


def states_at(session_id: UUID, leaf: int) -> dict[str, str]:
    """What holds after an entry, by those that it comes after itself: branches need not agree."""
    rows = Path(session_id, leaf=leaf).state(partial(read_rows, Message)) if leaf else ()
    return {row.kind: str(row.metadata.get(MARK, "")) for row in rows}


def states_at_head(session_id: UUID) -> dict[str, str]:
    rows = Message.objects.on_path(session_id).filter(is_state=True).order_by("-seq")
    found: dict[str, str] = {}
    for kind, metadata in rows.values_list("kind", "metadata")[:20]:
        found.setdefault(kind, str(metadata.get(MARK, "")))
    return found


def _mark(text: str) -> bytes:
    said = b"mark:" + text.encode("utf-8", "surrogatepass")
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, said, "sha256")[:12]
