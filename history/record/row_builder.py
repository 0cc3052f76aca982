"""Entries on their way into one session: everything about a row that can be decided before the database is asked.

A draft numbers, pairs, redacts, hashes and seals entries in memory, and keeps the session's own bookkeeping (version,
head, counters, title) in step. `storage` then writes the rows of one or many drafts together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from history import redaction
from history.db import bulk, packing
from history.entries import (
    CONVERSATION,
    EMPTY,
    LEAVES,
    MESSAGES,
    Entry,
    HeadMoved,
    Media,
    ModelInput,
    ModelOutput,
    ToolResult,
    ToolResults,
)
from history.errors import HistoryOff, NoSuchEntry, PairingError
from history.models import Blob, Message, Session, ToolCall, seals
from history.record import fingerprints, projections
from history.redaction.files import redacted_files
from history.redaction.walker import Redactors
from history.text.titles import title_from

# Sessions that we write ourselves are held to pairing; what others sent is stored as it came, and marked.
STRICT_SOURCES = frozenset({Session.Source.CHAT, Session.Source.NOTEBOOK})

# The result that the model reads for a call that was open when the user wrote the next message.
NOT_ANSWERED = "The user did not answer this and sent another message instead."


@dataclass(frozen=True, slots=True)
class Position:
    """What an entry stands on: all that it needs to know of the one that it follows."""

    fingerprint: bytes
    open_calls: tuple[tuple[str, str], ...] = ()  # (call id, tool) that nobody has answered, in the order asked
    output: int = 0  # the entry that asked for them


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A message that is not stored yet, with what its projections are made from."""

    message: Message
    entry: Entry
    packed: packing.Packed
    position: Position
    files: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)  # to be stored: hash → bytes, media type


@dataclass(frozen=True, slots=True)
class Prepared:
    """An entry as it may be stored, redacted before the transaction that stores it; `files` are the files it names.

    A draft uses it only if the session asks for the same redactors: the mode of a key may change in between.
    """

    entry: Entry
    files: Mapping[str, bytes]
    redactors: Redactors


def prepare(entry: Entry, *, recording: str, given: Mapping[str, bytes] = EMPTY) -> Prepared:
    """Redact an entry for a recording mode; `given` are files that it may name and that are not stored yet."""
    redactors = redaction.redactors_for(recording)
    redacted = redaction.redacted(entry, redactors)
    cleaned = redacted_files(redacted.entry, redactors, read=lambda name: _read_file(name, given))
    hits, stored = redacted.hits + cleaned.hits, cleaned.entry
    if hits:
        stored = replace(stored, metadata={**stored.metadata, "redacted": dict(hits)})
    return Prepared(stored, cleaned.files, redactors)


def _read_file(name: str, given: Mapping[str, bytes]) -> bytes | None:
    if name in given:
        return given[name]
    found = Blob.objects.filter(pk=name).values_list("data", flat=True).first()
    return None if found is None else bytes(found)


@dataclass
class Draft:
    """The rows that one transaction adds to one session. The session must be locked."""

    session: Session
    as_it_came: bool = False
    promised: str = "full"  # a recording mode: the stricter of it and that of the key is obeyed
    given: Mapping[str, bytes] = field(default_factory=dict)  # files that entries may name and nobody has stored yet
    rows: list[DraftRow] = field(default_factory=list)
    asked_for: list[int] = field(default_factory=list)  # positions in `rows` of what the caller gave
    flushed: int = 0  # how many rows are in the database already
    leaf: int = 0  # where the caller's next entry goes if it names no other place

    def __post_init__(self) -> None:
        key = self.session.api_key
        mode = redaction.stricter(key.recording, self.promised) if key else self.promised
        if not redaction.stores_bodies(mode):
            raise HistoryOff(f"the key of session {self.session.pk} records in mode {mode!r}: no texts are stored")
        self.leaf = self.session.head
        self.scope = fingerprints.scope_of(api_key_id=self.session.api_key_id, owner_id=self.session.owner_id)
        self.mode, self.redactors = mode, redaction.redactors_for(mode)
        self.is_strict = not self.as_it_came and self.session.source in STRICT_SOURCES
        self.positions: dict[int, Position] = {}

    def add(self, entry: Entry, *, after: int, prepared: Prepared | None = None) -> None:
        """One more entry. In our own sessions, calls that stand open before it are answered first."""
        position = self.position_of(after)
        if isinstance(entry, ToolResults):
            entry = self._paired(entry, position)
            if prepared is not None and isinstance(prepared.entry, ToolResults):
                prepared = replace(prepared, entry=self._paired(prepared.entry, position))
        elif entry.kind in CONVERSATION and position.open_calls and self.is_strict:
            after = self._put(_skipped(position, at=entry.at), after=after, position=position)
            position = self.positions[after]
        self.leaf = self._put(entry, after=after, position=position, prepared=prepared)
        self.asked_for.append(len(self.rows) - 1)

    def add_move(self, entry: HeadMoved, *, prepared: Prepared | None = None) -> None:
        """The fact that the head was moved; `storage.move_head` has moved it already."""
        self.positions.clear()
        self._put(entry, after=entry.to, position=self.position_of(entry.to), prepared=prepared)
        self.asked_for.append(len(self.rows) - 1)
        self.leaf = entry.to

    def pending(self) -> list[DraftRow]:
        return self.rows[self.flushed :]

    def position_of(self, seq: int) -> Position:
        if seq not in self.positions:
            self.positions[seq] = load_position(self.session, seq)
        return self.positions[seq]

    def _put(self, entry: Entry, *, after: int, position: Position, prepared: Prepared | None = None) -> int:
        """Make the row; returns where the next entry goes."""
        session, seq = self.session, self.session.version + 1
        fingerprint = fingerprints.fingerprint(entry, after=position.fingerprint, scope=self.scope)
        stored, cleaned = (entry, EMPTY) if self.as_it_came else self._redacted(entry, prepared)
        columns = projections.columns_of(stored)
        packed, salt = packing.pack(stored), seals.new_salt()
        digest = seals.digest_of(salt, packed.body)
        seal = seals.seal_of(session.last_seal, seq=seq, parent=after, kind=columns["kind"], digest=digest)
        is_leaf = columns["kind"] in LEAVES
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
        files = _files_of(stored, {**self.given, **cleaned}) if packed.attachments else {}
        self.rows.append(DraftRow(message, stored, packed, position, files))
        _count(session, stored, columns)
        session.version, session.last_seal = seq, seal
        if is_leaf:
            return after
        self.positions[seq] = next_position(position, stored, seq=seq, fingerprint=fingerprint)
        if moves:
            advance(session, position=self.positions[seq], seq=seq, is_message=is_message(message))
        return seq

    def _redacted(self, entry: Entry, prepared: Prepared | None) -> tuple[Entry, Mapping[str, bytes]]:
        """The entry as it may be kept, what was taken out of it counted in its metadata; and files as they may be."""
        if prepared is None or prepared.redactors != self.redactors:
            prepared = prepare(entry, recording=self.mode, given=self.given)
        return prepared.entry, prepared.files

    def _paired(self, entry: ToolResults, position: Position) -> ToolResults:
        if self.as_it_came:
            return entry
        try:
            return _in_order(entry, position.open_calls)
        except PairingError as misfit:
            if self.is_strict:
                raise
            return replace(entry, metadata={**entry.metadata, "unpaired": str(misfit)})


def _files_of(entry: Entry, files: Mapping[str, bytes]) -> dict[str, tuple[bytes, str]]:
    named = (part for part in packing.parts_of(entry) if isinstance(part, Media))
    return {part.sha256: (files[part.sha256], part.media_type) for part in named if part.sha256 in files}


def is_message(message: Message) -> bool:
    """Whether people see the entry as a message: `Session.message_count` counts those on the path to the head."""
    return message.kind in MESSAGES and not message.is_internal


def advance(session: Session, *, position: Position, seq: int, is_message: bool) -> None:
    """The head is entry `seq` now, which came after the old one."""
    set_head(session, position=position, seq=seq)
    session.message_count += is_message


def set_head(session: Session, *, position: Position, seq: int) -> None:
    session.head = seq
    session.head_fingerprint = position.fingerprint
    session.head_has_open_calls = bool(position.open_calls)


def _count(session: Session, entry: Entry, columns: Mapping[str, Any]) -> None:
    """The part of the bookkeeping that holds whichever branch the entry is on."""
    session.last_activity_at = max(session.last_activity_at, min(entry.at, timezone.now()))
    session.input_tokens += columns.get("input_tokens", 0)
    session.output_tokens += columns.get("output_tokens", 0)
    session.error_count += projections.errors_in(entry)
    session.agent = session.agent or columns["agent"]
    if isinstance(entry, ModelOutput):
        session.tool_call_count += len(entry.tool_requests)
        session.model = columns["model"] or session.model
    if isinstance(entry, ModelInput) and not session.title and not entry.is_internal:
        session.title = title_from(entry.text)


def next_position(position: Position, entry: Entry, *, seq: int, fingerprint: bytes) -> Position:
    """What the next entry needs to know. Entries that are not part of the conversation let open calls stand."""
    if isinstance(entry, ModelOutput):
        return Position(fingerprint, tuple((call.call_id, call.name) for call in entry.tool_requests), seq)
    if entry.kind in CONVERSATION:
        return Position(fingerprint)
    return replace(position, fingerprint=fingerprint)


def _in_order(entry: ToolResults, calls: Sequence[tuple[str, str]]) -> ToolResults:
    """The results in the order asked; by call id, and by place where a model used one id twice."""
    waiting = list(entry.results)
    ordered: list[ToolResult] = []
    for call_id, name in calls:
        # The rows of calls, from which open ones are known, keep ids short and clean.
        match = next((one for one in waiting if projections.same_id(one.call_id, call_id)), None)
        if match is None:
            raise PairingError(f"the call {call_id!r} of {name} has no result; answer every call, if only as skipped")
        waiting.remove(match)
        ordered.append(match)
    if waiting:
        raise PairingError(f"the result {waiting[0].call_id!r} answers no call that stands open here")
    return entry if tuple(ordered) == entry.results else replace(entry, results=tuple(ordered))


def _skipped(position: Position, *, at: datetime) -> ToolResults:
    results = tuple(
        ToolResult(call_id=call_id, name=name, status="skipped", error=NOT_ANSWERED)
        for call_id, name in position.open_calls
    )
    return ToolResults(results=results, at=at, is_internal=True)


def load_position(session: Session, seq: int) -> Position:
    """What follows an entry that is stored already stands on this; the head's is known from the session row."""
    if seq == session.head and not session.head_has_open_calls:
        return Position(session.head_fingerprint)
    if seq == 0 or seq == session.trimmed_through:
        return Position(fingerprints.START)
    step = _row(session, seq)
    if step is None or step["kind"] in LEAVES:
        raise NoSuchEntry(f"session {session.pk} has no entry {seq} to continue after")
    fingerprint = step["fingerprint"]
    while step and step["kind"] not in CONVERSATION:
        step = _row(session, step["parent_seq"])
    if step is None or step["kind"] != ModelOutput.kind:
        return Position(fingerprint)
    calls = ToolCall.objects.filter(message_id=step["id"]).order_by("index").values_list("call_id", "name")
    return Position(fingerprint, tuple(calls), step["seq"])


def _row(session: Session, seq: int) -> dict[str, Any] | None:
    columns = ("id", "seq", "parent_seq", "kind", "fingerprint")
    return Message.objects.at(session, seq).values(*columns).first() if seq else None
