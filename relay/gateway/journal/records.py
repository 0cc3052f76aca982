"""Records of the journal: call accepted, reply bytes, call ended.

A record is a payload of bytes behind one letter for its kind. What is long (the body of a request, the bytes of a
reply) is in it unchanged, behind a head; the head is JSON. Fields that a reader does not know are left out and fields
that a writer did not know have their defaults, so that an older journal can be digested by a newer process.
"""

import json
import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from history.clients.logins import ACCOUNT_HEADER
from history.dialects.http_api import CallKind

PARLEY_KEY = "x-parley-key"  # a header for our key alone, beside a vendor's credential
# Never written to the journal.
CREDENTIALS = frozenset(
    {
        *("authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "set-cookie"),
        *(PARLEY_KEY, ACCOUNT_HEADER),
    }
)

DAMAGED = "the journal is damaged"


class CallAccepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that is about to be sent: written before the first byte goes upstream."""

    exchange: UUID
    at: float
    key: int
    owner: int
    recording: str
    dialect: str
    kind: CallKind = "chat"
    method: str = "POST"
    path: str = ""
    query: str = ""
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    body_size: int = 0  # as received, also where the body itself is not kept
    provider: str = ""
    model: str = ""
    stream: bool = False
    session: UUID | None = None
    recognised_by: str = ""
    new_session: bool = False
    removed_session_field: bool = False
    peer: str = ""
    upstream_dialect: str = ""
    billing: str = ""  # "plan" if the caller's own subscription pays
    # Never written: a reader that must not hold a large body in memory leaves it out and says its size and hash.
    skipped: int = 0
    skipped_hash: str = ""


class ReplyBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a reply, with those before it (`offset`) and the number that a reader left out (`skipped`)."""

    exchange: UUID
    at: float
    data: bytes
    offset: int
    skipped: int = 0


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One try at one upstream. `status` is 0 where none answered."""

    provider: str
    status: int
    seconds: float
    error: str = ""


class CallEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a call. `reply` is the part of the reply that was not written before; `lost_bytes` of it are lost."""

    exchange: UUID
    at: float
    reason: str
    status: int = 0
    first_byte_at: float | None = None
    attempts: list[Attempt] = []
    response_headers: list[tuple[str, str]] = []
    # Not yet where that can wait until it is digested; then there is no hint and no cost.
    is_counted: bool = True
    usage_hint: dict[str, Any] = {}
    reply: bytes = b""
    reply_size: int = 0
    lost_bytes: int = 0
    error: str = ""
    metadata: dict[str, Any] = {}
    skipped: int = 0  # never written, as in `CallAccepted`


class RecordsLost(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal could not keep, written as soon as it can write again: whole calls, bytes, and why."""

    at: float
    calls: int
    lost_bytes: int
    why: str

    @property
    def is_damage(self) -> bool:
        """Whether a reader found it; otherwise its writer reported it."""
        return self.why.startswith(DAMAGED)


Record = CallAccepted | ReplyBytes | CallEnded | RecordsLost

_KINDS: dict[bytes, type[CallAccepted | CallEnded | RecordsLost]] = {
    b"A": CallAccepted,
    b"E": CallEnded,
    b"L": RecordsLost,
}
_LETTERS: dict[type, bytes] = {kind: letter for letter, kind in _KINDS.items()}
_REPLY = struct.Struct("<16sdQ")
_HEAD = struct.Struct("<I")
_encoder = msgspec.json.Encoder(uuid_format="hex")
_decoders = {letter: msgspec.json.Decoder(kind) for letter, kind in _KINDS.items()}


def without_credentials(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Headers as a record may hold them; their names are in small letters."""
    return [pair for pair in headers if pair[0] not in CREDENTIALS]


def encode_header(record: CallAccepted | CallEnded | RecordsLost) -> bytes:
    """A record without its body or reply bytes, which are written behind it."""
    try:
        head = _encoder.encode(record)
    except UnicodeEncodeError:  # a client may write half a character, as \ud800
        head = json.dumps(msgspec.to_builtins(record)).encode()
    return _LETTERS[type(record)] + _HEAD.pack(len(head)) + head


def encode_reply_header(exchange: UUID, at: float, *, offset: int) -> bytes:
    """The bytes are written behind it."""
    return b"P" + _REPLY.pack(exchange.bytes, at, offset)


def header_size(start: bytes) -> int:
    """The size of the head of a record that begins with these bytes."""
    letter = start[:1]
    if letter in _KINDS and len(start) > _HEAD.size:
        return 1 + _HEAD.size + int(_HEAD.unpack_from(start, 1)[0])
    return 1 + _REPLY.size if letter == b"P" else 0


def parse_record(payload: bytes, *, skipped: int = 0, skipped_hash: str = "") -> Record | None:
    """None for a kind of record that this release does not know. `skipped` bytes behind the payload were not read."""
    try:
        record = decode_record(memoryview(payload))
    except (ValueError, TypeError, LookupError, struct.error):
        return None
    if not skipped or isinstance(record, RecordsLost):
        return record
    hashed = {"skipped_hash": skipped_hash} if isinstance(record, CallAccepted) else {}
    return msgspec.structs.replace(record, skipped=skipped, **hashed)


def decode_record(payload: memoryview) -> Record:
    letter = bytes(payload[:1])
    if letter == b"P":
        exchange, at, offset = _REPLY.unpack_from(payload, 1)
        data = bytes(payload[1 + _REPLY.size :])
        return ReplyBytes(exchange=UUID(bytes=exchange), at=at, data=data, offset=offset)
    start = 1 + _HEAD.size
    end = start + _HEAD.unpack_from(payload, 1)[0]
    try:
        record = _decoders[letter].decode(payload[start:end])
    except msgspec.DecodeError:
        record = msgspec.convert(json.loads(bytes(payload[start:end])), _KINDS[letter])
    if letter == b"L" or end == len(payload):
        return record
    return msgspec.structs.replace(record, **{"body" if letter == b"A" else "reply": bytes(payload[end:])})
