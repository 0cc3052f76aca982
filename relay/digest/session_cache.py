"""Cache of what the digester knows of sessions: current instruction and tools, results of tools, missing parents.

Instruction and tools are compared by a keyed hash that is stored with their entries, results by a hash of the text that
was sent first. All of it can be read from the record again.
"""

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

# The fingerprint of the answer that called the tool, and the id of the call: models use ids again.
ResultKey = tuple[bytes, str]


@dataclass(slots=True)
class CachedSession:
    """`states` are the hashes that apply at the head, as long as the session is at this `version`."""

    states: dict[str, str] = field(default_factory=dict)
    results: dict[ResultKey, bytes] | None = None  # hashes of the texts of results; None until they were looked up
    version: int = 0


class SessionCache:
    def __init__(self) -> None:
        self._sessions: OrderedDict[UUID, CachedSession] = OrderedDict()
        self.orphans: OrderedDict[UUID, list[UUID]] = OrderedDict()  # by the parent that they name

    def get(self, session_id: UUID, *, version: int) -> CachedSession:
        """`version` is the session's; 0 for a new one. After a write of another process the states are read again."""
        # After a session was removed, its client's id leads to a new one, without entries.
        cached = self._sessions.get(session_id) if version else None
        if cached is None:
            cached = self._sessions[session_id] = CachedSession(results=None if version else {})
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        if cached.version != version:
            cached.states, cached.version = states_at_head(session_id), version
        self._sessions.move_to_end(session_id)
        return cached

    def note_version(self, session_id: UUID, version: int) -> None:
        """The digester's own writes are cached already."""
        if (cached := self._sessions.get(session_id)) is not None:
            cached.version = version

    def forget_all(self) -> None:
        """To be called when a transaction failed: nothing of it was stored."""
        self._sessions.clear()
        self.orphans.clear()

    def note_orphan(self, child: UUID, *, parent: UUID) -> None:
        self.orphans.setdefault(parent, []).append(child)
        while len(self.orphans) > MOST_SESSIONS:
            self.orphans.popitem(last=False)


def changed_states(request: DecodedRequest, cached: CachedSession, *, at: datetime) -> list[Entry]:
    states: list[Entry] = []
    if request.system:
        mark = instruction_hash(request.system)
        states.append(SystemInstructionSet(instruction=request.system, at=at, is_internal=True, metadata={MARK: mark}))
    if request.tools:
        mark = _hash(compact([[tool.name, tool.description, thaw(tool.parameters)] for tool in request.tools])).hex()
        states.append(ToolsOffered(tools=request.tools, at=at, is_internal=True, metadata={MARK: mark}))
    changed = [entry for entry in states if cached.states.get(entry.kind) != entry.metadata[MARK]]
    cached.states |= {entry.kind: entry.metadata[MARK] for entry in changed}
    return changed


def instruction_hash(instruction: str) -> str:
    return _hash(instruction).hex()


def states_at(session_id: UUID, leaf: int) -> dict[str, str]:
    """The states on the path to an entry: branches may differ."""
    rows = Path(session_id, leaf=leaf).state(partial(read_rows, Message)) if leaf else ()
    return {row.kind: str(row.metadata.get(MARK, "")) for row in rows}


def states_at_head(session_id: UUID) -> dict[str, str]:
    rows = Message.objects.on_path(session_id).filter(is_state=True).order_by("-seq")
    newest = list(rows.values_list("kind", "metadata")[:20])
    return {kind: str(metadata.get(MARK, "")) for kind, metadata in reversed(newest)}


def changed_results(request: RelayedRequest, cache: CachedSession, *, known: int, session: Session | None) -> list[str]:
    """The calls whose results a client sends with another text than at first."""
    resent = _results(request, range(known))
    if cache.results is None:
        cache.results = _stored_results(session, resent) if session and resent else {}
    changed = []
    for key, text in resent.items():
        digest = _hash(text)
        if cache.results.setdefault(key, digest) != digest:
            changed.append(key[1])
    for key, text in _results(request, range(known, len(request.entries))).items():
        cache.results[key] = _hash(text)
    return changed


def _results(request: RelayedRequest, indices: Iterable[int]) -> dict[ResultKey, str]:
    found: dict[ResultKey, str] = {}
    for index in indices:
        if isinstance(entry := request.entries[index], ToolResults):
            before = request.chain[index - 1] if index else b""
            found |= {(before, result.call_id): result.text for result in entry.results}
    return found


def _stored_results(session: Session, resent: dict[ResultKey, str]) -> dict[ResultKey, bytes]:
    """After a restart, compare the results as they would be stored: redacted and cut."""
    answered = ToolCall.objects.filter(session=session, answered_by__isnull=False).order_by("-pk")
    rows = answered.values_list("message__fingerprint", "call_id", "result")[:MOST_RESULTS]
    stored = {(fingerprint, call_id): result for fingerprint, call_id, result in rows}
    key = session.api_key
    redactors = redaction.redactors_for(key.recording) if key and redaction.stores_bodies(key.recording) else None
    hashes: dict[ResultKey, bytes] = {}
    for (before, call_id), text in resent.items():
        result = stored.get((before, stored_id(call_id)))
        if result is None or redactors is None:
            continue
        redacted = redaction.redacted_text(text, redactors)[0]
        is_same = redacted == result or (len(result) > 1_000 and redacted.startswith(result))
        hashes[before, call_id] = _hash(text) if is_same else b""
    return hashes


def _hash(text: str) -> bytes:
    payload = b"mark:" + text.encode("utf-8", "surrogatepass")
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, payload, "sha256")[:12]
