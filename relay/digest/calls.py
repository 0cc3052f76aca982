"""Relayed calls between journal and record: what is known of a call so far, and the plan of what it adds."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Self
from uuid import UUID

from history.entries import Entry, Gap, HeadMoved, JsonDict, JsonObject, ModelOutput, Usage
from history.models import ApiKey, Exchange, Message, Session
from history.record.recorder import Append
from relay.digest.requests import RelayedRequest, read_request
from relay.gateway.journal.record_framing import RecordPosition
from relay.gateway.journal.records import CallAccepted, CallEnded, Record, ReplyBytes
from relay.gateway.journal.segments import writer_of
from relay.gateway.journal.writer import WITHOUT_REPLIES

NO_COST = Decimal(0)
WAIT_SECONDS = 5.0  # how long a call waits for the answer that it continues
# How much of a reply is held in memory until its call has ended; larger ones are read from the journal again.
HELD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    reason: str  # how the exchange ended
    output: ModelOutput | None = None  # None if there is neither text nor error
    usage: Usage | None = None
    error: str = ""
    error_body: str = ""
    unread: str = ""  # why the reply was not read
    reply_id: str = ""
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    others: tuple[ModelOutput, ...] = ()  # further answers to the same request
    rest: ModelOutput | None = None  # what came back, where `output` begins with the client's prefill
    skipped: int = 0
    items: tuple[str, ...] = ()  # ids of items that the vendor stores


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """Where a request continues: in a session that exists or is to be created, after entry `after`."""

    session: Session | None
    session_id: UUID | None
    by: str  # how the session was found
    after: int = 0
    known: int = 0  # so many entries of the request are in the record already
    move: str = ""  # why the head has to go back first
    answered_at: datetime | None = None
    is_guess: bool = False  # the answer that the request names is not in the record, or not yet
    is_appended: bool = False  # the request names a session without resending it, so it continues at its end


@dataclass(frozen=True, slots=True)
class LargeBody:
    """A body that is too large to be parsed. `file` is '' if it was not kept."""

    size: int
    sha256: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledCall:
    """A call whose request is in the record: the answer follows entry `after`."""

    session_id: UUID | None = None
    after: int = 0
    attempts: int = 0
    metadata: JsonObject = field(default_factory=dict)
    is_overtaken: bool = False  # the client has tried again since, and the exchange is the later try's


@dataclass(slots=True, kw_only=True)
class PendingCall:
    request: RelayedRequest
    writer: str
    places: dict[str, list[RecordPosition]] = field(default_factory=dict)  # its records in each segment
    # On the monotonic clock: when it was read, and when it was accepted.
    seen_at: float = field(default_factory=time.monotonic)
    accepted_at: float = 0.0
    rounds: int = 0
    # The bytes of the reply that came without a gap, as many as are held in memory, and whether all of them are.
    pieces: list[bytes] = field(default_factory=list)
    received: int = 0
    is_held: bool = True
    has_gap: bool = False
    answer: RecordedAnswer | None = None  # read from the journal before the transaction that files it
    large_request: LargeBody | None = None
    large_reply: LargeBody | None = None
    ended: CallEnded | None = None
    ended_at: float = 0.0
    filed: FiledCall | None = None
    earlier: UUID | None = None  # an earlier try of the client that is still pending here
    is_clear: bool = False  # no other host has anything from before it that is not in the record
    has_clashed: bool = False  # another host has written at the same moment: the call is planned once more
    is_given_up: bool = False  # it could not be stored: only the exchange is

    @property
    def id(self) -> UUID:
        return self.request.record.exchange

    @property
    def is_due(self) -> bool:
        return self.filed is None or self.ended is not None

    def unseen_since(self, *, is_filed: bool) -> float | None:
        """Since when its request or its end is missing from the record."""
        if self.filed is None and not is_filed:
            return self.accepted_at
        return self.ended_at if self.ended is not None else None

    @property
    def size(self) -> int:
        return len(self.request.record.body) + sum(map(len, self.pieces))

    @property
    def missing(self) -> int:
        """How many bytes of the reply were written to the journal and cannot be read any more."""
        if self.ended is None or self.request.record.recording in WITHOUT_REPLIES:
            return 0
        return max(0, self.ended.reply_size - self.ended.lost_bytes - self.received)

    @classmethod
    def begin(cls, place: RecordPosition, record: CallAccepted) -> Self:
        call = cls(request=read_request(record), writer=writer_of(place.segment), accepted_at=_monotonic_time(record))
        call.add(place, record)
        return call

    def add(self, place: RecordPosition, record: Record) -> None:
        self.places.setdefault(place.segment, []).append(place)
        if isinstance(record, ReplyBytes):
            self._receive(record.data, offset=record.offset, skipped=record.skipped)
        elif isinstance(record, CallEnded) and self.ended is None:
            self.end(record)
            offset = record.reply_size - record.lost_bytes - len(record.reply) - record.skipped
            self._receive(record.reply, offset=offset, skipped=record.skipped)

    def _receive(self, data: bytes, *, offset: int, skipped: int) -> None:
        """Leave out bytes behind a gap: half an answer is its beginning, never one with a hole."""
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
        """No row names its files any more, so they are removed."""
        self.large_request = self.large_request and replace(self.large_request, file="")
        self.large_reply = self.large_reply and replace(self.large_reply, file="")

    def end(self, record: CallEnded) -> None:
        self.ended, self.ended_at = record, _monotonic_time(record)


def _monotonic_time(record: CallAccepted | CallEnded) -> float:
    return time.monotonic() - max(0.0, time.time() - record.at)


class AnswerCopy(NamedTuple):
    """The client's copy of an answer. `is_complete` means that it has everything that the answer has."""

    message: Message
    is_complete: bool


@dataclass(slots=True, kw_only=True)
class CallPlan:
    """What one call adds to the record in this transaction: `entries`, then `message`, `gap` and `way_back`."""

    call: PendingCall
    key: ApiKey
    mode: str  # the recording mode
    keeps_texts: bool
    earlier: Exchange | None = None  # the try of the client that this one replaces
    copy: AnswerCopy | None = None  # the answer as the client has already sent it back
    session_id: UUID | None = None
    new_session: Session | None = None
    start: int | None = None  # the entry that `entries` follow
    entries: list[Entry] = field(default_factory=list)
    after: int = 0
    answer: RecordedAnswer | None = None
    cost: Decimal = NO_COST
    message: ModelOutput | None = None  # the answer
    message_id: int | None = None
    message_seq: int = 0
    way_back: HeadMoved | None = None
    gap: Gap | None = None  # what is missing of the answer
    appends: list[Append] = field(default_factory=list)  # redacted before the transaction
    further: list[Append] = field(default_factory=list)
    note: Append | None = None
    columns: JsonObject = field(default_factory=dict)
    child: Session | None = None  # the session that was found: its parent may be known by now
    attempts: int = 0
    metadata: JsonDict = field(default_factory=dict)

    @property
    def request(self) -> RelayedRequest:
        return self.call.request
