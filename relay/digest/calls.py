"""A call on its way into the record: what there is of it so far, and what it will add."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from history.entries import Entry, Gap, HeadMoved, ModelOutput, Usage
from history.models import ApiKey, Exchange, Session
from history.record.recorder import Append
from relay.digest.requests import RelayedRequest, read
from relay.gateway.journal.records import Accepted, Ended, Record, ReplyBytes
from relay.gateway.journal.segments import RecordPosition, writer_of
from relay.gateway.journal.writer import WITHOUT_REPLIES

NOTHING = Decimal(0)
# How long a call waits for the answer that it continues from.
WAIT_SECONDS = 5.0
# So much of a reply is held in memory until its call has ended; more is read from the journal again.
HELD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """`reason` is how the exchange ended, `output` what there is to keep (None: not a word and no error)."""

    reason: str
    output: ModelOutput | None = None
    usage: Usage | None = None
    error: str = ""
    error_body: str = ""
    # Why the reply was not read: compressed in a way that we do not know, or too large.
    unread: str = ""
    reply_id: str = ""
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    # Further answers to the same question, where the caller asked for several.
    others: tuple[ModelOutput, ...] = ()
    # What came back, where the output begins with what the client had written of it.
    rest: ModelOutput | None = None
    skipped: int = 0
    # Names of its items, where the vendor keeps them.
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a request goes on: in a session that is there (or is to be made), after entry `after`.

    `known` entries of the request are in the record already. `move` says why the head has to go back first.
    `is_guess`: the answer that the request names is not in the record, or not yet. `is_appended`: the request names a
    session and does not resend what was said in it, so it goes on where the session ends.
    """

    session: Session | None
    session_id: UUID | None
    by: str
    after: int = 0
    known: int = 0
    move: str = ""
    answered_at: datetime | None = None
    is_guess: bool = False
    is_appended: bool = False


@dataclass(frozen=True, slots=True)
class LargeBody:
    """A body that is too large to be parsed. `file` is '' if it was not kept."""

    size: int
    sha256: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledCall:
    """The request is in the record: its answer comes after entry `after` of this session.

    `is_overtaken`: the client has tried again meanwhile, and the exchange is the later try's.
    """

    session_id: UUID | None = None
    after: int = 0
    attempts: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_overtaken: bool = False


@dataclass(slots=True, kw_only=True)
class PendingCall:
    """A call as far as the journal has told it."""

    asked: RelayedRequest
    writer: str
    # In each segment that tells of it, where.
    places: dict[str, list[RecordPosition]] = field(default_factory=dict)
    # By our own steady clock: when we read of it, and when it was accepted.
    seen_at: float = field(default_factory=time.monotonic)
    accepted_at: float = 0.0
    rounds: int = 0
    # Of the reply: the bytes that came without a gap, as many as are held in memory, and whether all of them are.
    pieces: list[bytes] = field(default_factory=list)
    received: int = 0
    is_held: bool = True
    has_gap: bool = False
    # Read from the journal before the transaction that files it.
    answer: RecordedAnswer | None = None
    large_request: LargeBody | None = None
    large_reply: LargeBody | None = None
    ended: Ended | None = None
    ended_at: float = 0.0
    filed: FiledCall | None = None
    # An earlier try of the client's that is still under way here.
    earlier: UUID | None = None
    # Other hosts have nothing more from before it that is not in the record.
    is_clear: bool = False
    # Others have written at the same moment: that is looked at once more.
    has_clashed: bool = False
    # It could not be stored as it is: then at least that there was a call.
    is_given_up: bool = False

    @property
    def id(self) -> UUID:
        return self.asked.record.exchange

    @property
    def is_due(self) -> bool:
        return self.filed is None or self.ended is not None

    def unseen_since(self, *, is_filed: bool) -> float | None:
        """Since when there is something of it that others do not find in the record: its request, or its end."""
        if self.filed is None and not is_filed:
            return self.accepted_at
        return self.ended_at if self.ended is not None else None

    @property
    def size(self) -> int:
        return len(self.asked.record.body) + sum(map(len, self.pieces))

    @property
    def missing(self) -> int:
        """How many bytes of the reply were written to the journal and are not there any more."""
        if self.ended is None or self.asked.record.recording in WITHOUT_REPLIES:
            return 0
        return max(0, self.ended.reply_size - self.ended.lost_bytes - self.received)

    @classmethod
    def begun(cls, place: RecordPosition, record: Accepted) -> PendingCall:
        call = cls(asked=read(record), writer=writer_of(place.segment), accepted_at=_moment_of(record))
        call.note(place, record)
        return call

    def note(self, place: RecordPosition, record: Record) -> None:
        """That the journal tells of it there, and what."""
        self.places.setdefault(place.segment, []).append(place)
        if isinstance(record, ReplyBytes):
            self._receive(record.data, offset=record.offset, skipped=record.skipped)
        elif isinstance(record, Ended) and self.ended is None:
            self.end(record)
            offset = record.reply_size - record.lost_bytes - len(record.reply) - record.skipped
            self._receive(record.reply, offset=offset, skipped=record.skipped)

    def _receive(self, data: bytes, *, offset: int, skipped: int) -> None:
        """Bytes behind a gap are left out: half an answer is its beginning, never one with a hole."""
        if self.has_gap or not (data or skipped):
            return
        if offset > self.received:
            self.has_gap = True
            return
        self.received += len(data) + skipped
        self.is_held = self.is_held and not skipped and self.received <= HELD_BYTES
        if self.is_held:
            self.pieces.append(data)
        else:
            self.pieces.clear()

    def forget_files(self) -> None:
        """No row names them from now on, and so they are removed."""
        for name in ("large_request", "large_reply"):
            if (large := getattr(self, name)) is not None:
                setattr(self, name, replace(large, file=""))

    def end(self, record: Ended) -> None:
        self.ended, self.ended_at = record, _moment_of(record)


def _moment_of(record: Accepted | Ended) -> float:
    """When it was, by a clock that nobody sets."""
    return time.monotonic() - max(0.0, time.time() - record.at)


@dataclass(frozen=True, slots=True)
class AnswerCopy:
    """The client's copy of an answer. `is_whole`: it has all that the answer has."""

    session_id: UUID
    after: int
    seq: int
    message_id: int
    is_whole: bool


@dataclass(slots=True, kw_only=True)
class CallPlan:
    """What one call adds to the record in this transaction.

    `before` was filed in an earlier one; `earlier` is a try of the client's that this one takes the place of; `copy` is
    the answer as the client has sent it back already. `entries` begin after entry `start`, and the answer, `message`,
    follows them; then there may be a `gap` that says what is missing of it, and a `way_back`.
    """

    under: PendingCall
    key: ApiKey
    keeps_texts: bool
    before: FiledCall | None = None
    earlier: Exchange | None = None
    copy: AnswerCopy | None = None
    session_id: UUID | None = None
    new_session: Session | None = None
    start: int | None = None
    entries: list[Entry] = field(default_factory=list)
    after: int = 0
    answer: RecordedAnswer | None = None
    cost: Decimal = NOTHING
    message: ModelOutput | None = None
    message_id: int | None = None
    message_seq: int = 0
    way_back: HeadMoved | None = None
    gap: Gap | None = None
    # Redacted before the transaction: what is appended, further answers, the note of a side call, columns of the row.
    appends: list[Append] = field(default_factory=list)
    further: list[Append] = field(default_factory=list)
    note: Append | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    # The session that was found; its parent may be known by now.
    child: Session | None = None
    attempts: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> RelayedRequest:
        return self.under.asked
