"""What the relay's journal says of one call: accepted, bytes of the reply, ended. Plain values and their bytes.

A record is a payload of bytes behind one letter for its kind. Whatever is long (the body of a request, the bytes of a
reply) lies in it untouched; the rest is JSON. Fields that a reader does not know are left out and fields that a writer
did not know have their defaults, so that an older journal can be digested by a newer process and the other way round.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal
from uuid import UUID

Kind = Literal["chat", "count", "other"]

# They never reach the journal, whatever the caller hands over.
CREDENTIALS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "set-cookie"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A call that is about to be sent: written before the first byte goes upstream."""

    exchange: UUID
    at: float
    key: int
    owner: int
    recording: str
    dialect: str
    kind: Kind = "chat"
    method: str = "POST"
    path: str = ""
    query: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    # As received, also where the body itself is not kept; the journal fills it in.
    body_size: int = 0
    provider: str = ""
    model: str = ""
    stream: bool = False
    session: UUID | None = None
    recognised_by: str = ""
    new_session: bool = False
    removed_session_field: bool = False
    peer: str = ""
    upstream_dialect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBytes:
    """Some of what the upstream sent, untouched."""

    exchange: UUID
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one upstream. `status` is 0 where none answered."""

    provider: str
    status: int
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How it ended, and what is known of it beside the bytes. `lost_bytes` of the reply could not be kept."""

    exchange: UUID
    at: float
    reason: str
    status: int = 0
    first_byte_at: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    response_headers: list[tuple[str, str]] = field(default_factory=list)
    usage_hint: dict[str, Any] = field(default_factory=dict)
    reply_size: int = 0
    lost_bytes: int = 0
    error: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What the journal could not keep, written as soon as it can write again: whole calls, bytes, and why."""

    at: float
    calls: int
    lost_bytes: int
    why: str


Record = Accepted | ReplyBytes | Ended | Lost

_LETTERS: dict[type, bytes] = {Accepted: b"A", ReplyBytes: b"R", Ended: b"E", Lost: b"L"}
_KINDS: dict[bytes, type] = {letter: kind for kind, letter in _LETTERS.items()}
_REPLY = struct.Struct("<16sd")
_HEAD = struct.Struct("<I")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class NotARecordError(ValueError):
    """The bytes are whole, but not those of a record that we know how to read."""


def to_bytes(record: Record, **instead: Any) -> tuple[bytes, ...]:
    """The payload in pieces, so that a long body is not copied to be written; some fields as told `instead`."""
    if isinstance(record, ReplyBytes):
        return b"R" + _REPLY.pack(record.exchange.bytes, record.at), record.data
    head = _encode(_as_json(record, instead)).encode("utf-8", "surrogatepass")
    tail = (instead.get("body", record.body),) if isinstance(record, Accepted) else ()
    return _LETTERS[type(record)] + _HEAD.pack(len(head)) + head, *tail


def from_bytes(payload: memoryview) -> Record:
    kind = _KINDS.get(bytes(payload[:1]))
    try:
        if kind is ReplyBytes:
            exchange, at = _REPLY.unpack_from(payload, 1)
            return ReplyBytes(exchange=UUID(bytes=exchange), at=at, data=bytes(payload[1 + _REPLY.size :]))
        if kind is not None:
            return _from_head(kind, payload)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise NotARecordError(str(error)) from error
    raise NotARecordError(f"no kind {bytes(payload[:1])!r}")


def _from_head(kind: type, payload: memoryview) -> Record:
    start = 1 + _HEAD.size
    end = start + _HEAD.unpack_from(payload, 1)[0]
    values = json.loads(bytes(payload[start:end]).decode("utf-8", "surrogatepass"))
    if kind is Accepted:
        values["body"] = bytes(payload[end:])
        values["session"] = UUID(values["session"]) if values.get("session") else None
    if kind is not Lost:
        values["exchange"] = UUID(values["exchange"])
    for name in ("headers", "response_headers"):
        if name in values:
            values[name] = [(str(header), str(value)) for header, value in values[name]]
    if kind is Ended:
        values["attempts"] = [Attempt(*attempt) for attempt in values.get("attempts", [])]
    record: Record = kind(**_known(kind, values))
    return record


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _NAMES[kind] if name in values}


def _as_json(record: Accepted | Ended | Lost, instead: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is as by default, and without the body, which follows as it is."""
    values: dict[str, Any] = {}
    for name, default in _NAMES[type(record)].items():
        if name != "body" and (value := instead.get(name, getattr(record, name))) != default:
            values[name] = value.hex if isinstance(value, UUID) else value
    if isinstance(record, Ended):
        values["attempts"] = [
            (attempt.provider, attempt.status, attempt.seconds, attempt.error) for attempt in record.attempts
        ]
    return values


def _default(one: Any) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


_NAMES: dict[type, dict[str, Any]] = {
    kind: {one.name: _default(one) for one in fields(kind)} for kind in (Accepted, Ended, Lost)
}
