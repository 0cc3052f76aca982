"""Rows of new entries, built in memory before the transaction writes them.

A draft numbers, pairs, redacts, hashes and seals the entries of one session, and keeps the session's version, head,
counters and title in step. `writer` then writes the rows of one or many drafts together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils import timezone

from history import redaction
from history.db import bulk, packing
from history.entries.kinds import CONVERSATION, NEVER_PARENTS, Entry, HeadMoved, ModelInput, ModelOutput, ToolResults
from history.entries.values import ToolResult
from history.errors import HistoryOff, NoSuchEntry, PairingError
from history.models import Message, Session, ToolCall, seals
from history.record import fingerprints, projections
from history.record.loading import bytes_of
from history.redaction.walker import Redactors, redacted_files
from history.text.titles import title_from

# Our own sessions must answer every call. Unpaired results of other programs are stored unchanged, and marked.
STRICT_SOURCES = frozenset({Session.Source.CHAT, Session.Source.NOTEBOOK})

# The result that the model reads for a call that was open when the user wrote the next message.
NOT_ANSWERED = "The user did not answer this and sent another message instead."


@dataclass(frozen=True, slots=True)
class ParentState:
    """What an entry has to know of the entry that it follows."""

    fingerprint: bytes
    open_calls: tuple[tuple[str, str], ...] = ()  # (call id, tool) in the order of the calls
    output: int = 0  # the entry with these calls


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A message that is not stored yet, with the values that its projections are made from."""

    message: Message
    entry: Entry
    packed: packing.Packed
    parent_state: ParentState
    files: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)  # to be stored: hash → bytes, media type


@dataclass(frozen=True, slots=True)
class Prepared:
    """An entry redacted before the transaction that stores it, and the files that it names."""

    entry: Entry
    files: Mapping[str, bytes]
    redactors: Redactors  # a draft with others does not use it: the mode of a key may change in between


def prepare(entry: Entry, *, recording: str, files: Mapping[str, bytes]) -> Prepared:
    """Redact an entry for a recording mode. `files` may be named by the entry and are not stored yet."""
    redactors = redaction.redactors_for(recording)
    redacted = redaction.redacted(entry, redactors)
    cleaned = redacted_files(redacted.entry, redactors, read=lambda name: files.get(name) or bytes_of(name))
    hits, stored = redacted.hits + cleaned.hits, cleaned.entry
    if hits:
        stored = replace(stored, metadata={**stored.metadata, "redacted": dict(hits)})
    return Prepared(stored, cleaned.files, redactors)


@dataclass
class SessionDraft:
    """The rows that one transaction adds to one session, which must be locked."""

    session: Session
    is_verbatim: bool = False  # a copy of stored entries: not redacted or paired again
    recording: str = "full"  # the stricter of this mode and that of the key applies
    files: Mapping[str, bytes] = field(default_factory=dict)  # named by entries, not stored yet
    rows: list[DraftRow] = field(default_factory=list)
    requested: list[DraftRow] = field(default_factory=list)  # those of the caller's entries
    flushed: int = 0  # the number of rows that are stored
    leaf: int = 0  # the default parent of the next entry

    def __post_init__(self) -> None:
        key = self.session.api_key
        mode = redaction.stricter(key.recording, self.recording) if key else self.recording
        if not redaction.stores_bodies(mode):
            raise HistoryOff(f"the key of session {self.session.pk} records in mode {mode!r}: no texts are stored")
        self.leaf = self.session.head
        self.scope = fingerprints.scope_of(api_key_id=self.session.api_key_id, owner_id=self.session.owner_id)
        self.mode, self.redactors = mode, redaction.redactors_for(mode)
        self.is_strict = not self.is_verbatim and self.session.source in STRICT_SOURCES
        self.parent_states: dict[int, ParentState] = {}

    def add(self, entry: Entry, *, after: int, prepared: Prepared | None = None) -> None:
        """Add an entry. In our own sessions, open calls before it are answered as skipped first."""
        parent_state = self.parent_state_of(after)
        if isinstance(entry, ToolResults):
            entry = self._paired(entry, parent_state)
            if prepared is not None and isinstance(prepared.entry, ToolResults):
                prepared = replace(prepared, entry=self._paired(prepared.entry, parent_state))
        elif entry.kind in CONVERSATION and parent_state.open_calls and self.is_strict:
            skipped = tuple(
                ToolResult(call_id=call_id, name=name, status="skipped", error=NOT_ANSWERED)
                for call_id, name in parent_state.open_calls
            )
            results = ToolResults(results=skipped, at=entry.at, is_internal=True)
            after = self._put(results, after=after, parent_state=parent_state)
            parent_state = self.parent_states[after]
        self.leaf = self._put(entry, after=after, parent_state=parent_state, prepared=prepared)
        self.requested.append(self.rows[-1])

    def add_move(self, entry: HeadMoved, *, prepared: Prepared | None = None) -> None:
        """Add the entry of a moved head. `writer.move_head` has moved it already."""
        self.parent_states.clear()
        self._put(entry, after=entry.to, parent_state=self.parent_state_of(entry.to), prepared=prepared)
        self.requested.append(self.rows[-1])
        self.leaf = entry.to

    def pending(self) -> list[DraftRow]:
        return self.rows[self.flushed :]

    def parent_state_of(self, seq: int) -> ParentState:
        if seq not in self.parent_states:
            self.parent_states[seq] = load_parent_state(self.session, seq)
        return self.parent_states[seq]

    def _put(self, entry: Entry, *, after: int, parent_state: ParentState, prepared: Prepared | None = None) -> int:
        """Build the row. Returns the entry that the next one follows."""
        session, seq = self.session, self.session.version + 1
        fingerprint = fingerprints.fingerprint(entry, after=parent_state.fingerprint, scope=self.scope)
        if self.is_verbatim:
            prepared = Prepared(entry, {}, self.redactors)
        elif prepared is None or prepared.redactors != self.redactors:
            prepared = prepare(entry, recording=self.mode, files=self.files)
        stored = prepared.entry
        columns = projections.columns_of(stored)
        packed, salt = packing.pack(stored), seals.new_salt()
        digest = seals.digest_of(salt, packed.body)
        seal = seals.seal_of(session.last_seal, seq=seq, parent=after, kind=columns["kind"], digest=digest)
        is_leaf = columns["kind"] in NEVER_PARENTS
        moves = after == session.head and not is_leaf
        message = bulk.new(
            Message,
            session=session,
            seq=seq,
            parent_seq=after,
            on_path=moves,
            moved_head=moves or entry.kind == HeadMoved.kind,
            body=packed.body,
            salt=salt,
            digest=digest,
            seal=seal,
            fingerprint=fingerprint,
            **columns,
        )
        media = list(packing.media_of(stored)) if packed.attachments else []
        known = {**self.files, **prepared.files} if media else {}
        files = {part.sha256: (known[part.sha256], part.media_type) for part in media if part.sha256 in known}
        self.rows.append(DraftRow(message, stored, packed, parent_state, files))
        count_entry(session, message, stored)
        _describe(session, stored, columns)
        session.version, session.last_seal = seq, seal
        if is_leaf:
            return after
        self.parent_states[seq] = next_parent_state(parent_state, message, calls=projections.calls_in(stored))
        if moves:
            advance(session, parent_state=self.parent_states[seq], seq=seq, is_message=message.is_message)
        return seq

    def _paired(self, entry: ToolResults, parent_state: ParentState) -> ToolResults:
        if self.is_verbatim:
            return entry
        try:
            return _in_order(entry, parent_state.open_calls)
        except PairingError as misfit:
            if self.is_strict:
                raise
            return replace(entry, metadata={**entry.metadata, "unpaired": str(misfit)})


def advance(session: Session, *, parent_state: ParentState, seq: int, is_message: bool) -> None:
    """Make entry `seq` the head; it follows the old one."""
    set_head(session, parent_state=parent_state, seq=seq)
    session.message_count += is_message


def set_head(session: Session, *, parent_state: ParentState, seq: int) -> None:
    session.head = seq
    session.head_fingerprint = parent_state.fingerprint
    session.head_has_open_calls = bool(parent_state.open_calls)


def count_entry(session: Session, message: Message, entry: Entry | None) -> None:
    """Add an entry to the totals of its session, on any branch; one without its text is counted by its row."""
    session.input_tokens += message.input_tokens
    session.output_tokens += message.output_tokens
    if message.body is None:
        session.error_count += projections.stored_errors(message)
    elif entry is not None:
        session.error_count += projections.errors_in(entry)
        session.tool_call_count += len(projections.calls_in(entry))


def _describe(session: Session, entry: Entry, columns: Mapping[str, Any]) -> None:
    """Update the session's last activity, agent, model and title."""
    session.last_activity_at = max(session.last_activity_at, min(entry.at, timezone.now()))
    session.agent = session.agent or columns["agent"]
    if isinstance(entry, ModelOutput):
        session.model = columns["model"] or session.model
    if isinstance(entry, ModelInput) and not session.title and not entry.is_internal:
        session.title = title_from(entry.text)


def next_parent_state(parent_state: ParentState, message: Message, *, calls: Sequence[tuple[str, str]]) -> ParentState:
    """The position after this message. Entries that are not part of the conversation leave open calls open."""
    if message.kind == ModelOutput.kind:
        return ParentState(message.fingerprint, tuple(calls), message.seq)
    if message.kind in CONVERSATION:
        return ParentState(message.fingerprint)
    return replace(parent_state, fingerprint=message.fingerprint)


def _in_order(entry: ToolResults, calls: Sequence[tuple[str, str]]) -> ToolResults:
    """The results in the order of the calls: by call id, and by place if a model used an id twice."""
    ordered: list[int] = []
    paired = projections.pair_results([call_id for call_id, _ in calls], [one.call_id for one in entry.results])
    for (call_id, name), index in zip(calls, paired, strict=True):
        if index is None:
            raise PairingError(f"the call {call_id!r} of {name} has no result; answer every call, if only as skipped")
        ordered.append(index)
    if left := [result for index, result in enumerate(entry.results) if index not in ordered]:
        raise PairingError(f"the result {left[0].call_id!r} answers no open call")
    if ordered == sorted(ordered):
        return entry
    return replace(entry, results=tuple(entry.results[index] for index in ordered))


def load_parent_state(session: Session, seq: int) -> ParentState:
    """The position after a stored entry. That of the head is known from the session row."""
    if seq == session.head and not session.head_has_open_calls:
        return ParentState(session.head_fingerprint)
    if seq == 0 or seq == session.trimmed_through:
        return ParentState(fingerprints.START)
    step = _row(session, seq)
    if step is None or step["kind"] in NEVER_PARENTS:
        raise NoSuchEntry(f"session {session.pk} has no entry {seq} to continue after")
    fingerprint = step["fingerprint"]
    while step and step["kind"] not in CONVERSATION:
        step = _row(session, step["parent_seq"])
    if step is None or step["kind"] != ModelOutput.kind:
        return ParentState(fingerprint)
    calls = ToolCall.objects.filter(message_id=step["id"]).order_by("index").values_list("call_id", "name")
    return ParentState(fingerprint, tuple(calls), step["seq"])


def _row(session: Session, seq: int) -> dict[str, Any] | None:
    columns = ("id", "seq", "parent_seq", "kind", "fingerprint")
    return Message.objects.at(session, seq).values(*columns).first() if seq else None
