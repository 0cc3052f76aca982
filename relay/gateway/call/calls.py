"""One relayed call: the request, and what is known of it before it is sent."""

import time
from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import getrandbits
from uuid import UUID

from history.dialects.json_access import items, obj, string
from history.dialects.references import Reference
from history.dialects.types import ConversationEntry
from history.entries import JsonObject
from history.models import ApiKey
from relay.gateway.call.addresses import Address
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.headers import Pairs
from relay.gateway.call.session_ids import NOT_NAMED, SessionName
from relay.gateway.journal.records import Attempt
from relay.runtime.asgi import Headers
from relay.usage.prices import NO_USE, Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The conversation that a call continues by id. `size` is about how many bytes it has.

    `system` has the instructions among its items, which stay. The record does not separate them from those of one
    request: `recorded_system` counts if the new request has none.
    """

    entries: tuple[ConversationEntry, ...]
    system: str = ""
    recorded_system: str = ""
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    size: int = 0


@dataclass(slots=True, kw_only=True)
class Call:
    """`wire_body` and `wire_headers` are sent on; `body` and `pairs` are the same, readable.

    `fields` are the few top-level fields that were read, `references` name things that the vendor stores.
    """

    loop: AbstractEventLoop  # `get_running_loop` takes a system call
    method: str
    path: str
    query: str
    pairs: Pairs
    wire_headers: Pairs
    headers: dict[str, str]
    peer: str
    exchange: UUID
    name: str  # of the exchange: it is used several times
    at: float = field(default_factory=time.time)
    key: ApiKey
    recording: str = "off"
    is_limited: bool = False
    spent: Use = NO_USE
    address: Address
    wire_body: bytes = b""
    body: bytes = b""
    fields: JsonObject = field(default_factory=dict)
    references: Sequence[Reference] = ()
    model: str = ""
    session_name: SessionName = NOT_NAMED
    has_lost_session_field: bool = False
    is_changed: bool = False
    # It continues an answer of one of several upstreams, and this process does not know of which.
    is_origin_unknown: bool = False
    earlier: Earlier | None = None
    lasting_system: str = ""
    attempts: list[Attempt] = field(default_factory=list)

    def set_fields(self, fields: JsonObject, references: Sequence[Reference] = ()) -> None:
        self.fields, self.references = fields, references
        self.model = self.address.model or string(fields.get("model"))

    @property
    def reply_id(self) -> str:
        """The id of a translated answer."""
        return self.address.api.reply_id_prefix + self.exchange.hex

    @property
    def size(self) -> int:
        """Of the body, and of the conversation that is encoded before it."""
        return len(self.body) + (self.earlier.size if self.earlier else 0)

    @property
    def wants_stream(self) -> bool:
        return self.address.api.wants_stream(self.fields, self.address.verb)

    def affinity(self) -> bytes:
        """Equal for all calls of a conversation: its session, else how it began."""
        if self.session_name.session:
            return self.session_name.session.bytes
        return f"{self.key.pk}\0{_opening(parse_object(self.body))!r}".encode("utf-8", "surrogatepass")

    @property
    def record_headers(self) -> tuple[tuple[str, str], ...]:
        headers = [("x-parley-recording", self.recording)]
        if self.session_name.session and self.recording != "off":
            session = str(self.session_name.session)
            headers += [("x-parley-session-id", session), ("x-crs-session-id", session)]
        return tuple(headers)

    @property
    def response_headers(self) -> Headers:
        pairs = (("x-parley-exchange-id", self.name), *self.record_headers)
        return [(name.encode(), value.encode()) for name, value in pairs]


def _opening(body: JsonObject) -> list[tuple[str, list[object]]]:
    """All up to the first user message: many conversations have the same instructions before it."""
    sent = next((body[name] for name in ("messages", "contents", "input") if body.get(name)), ())
    turns = [{"role": "user", "content": sent}] if isinstance(sent, str) else [obj(turn) for turn in items(sent)]
    first = next((place for place, turn in enumerate(turns) if turn.get("role") == "user"), 0)
    return [(string(turn.get("role")), _parts(turn)) for turn in turns[: first + 1]]


def _parts(turn: JsonObject) -> list[object]:
    """Without cache marks, which move on with the conversation and turn a text into a block."""
    content = turn.get("content")
    if isinstance(content, str):
        return [content]
    parts = [obj(part) for part in items(content) or items(turn.get("parts"))]
    return [string(part.get("text")) or {k: v for k, v in part.items() if k != "cache_control"} for part in parts]


# Ids. They are not secret, so the system's source of randomness, which takes far longer, is not needed.

_VERSION_7 = 7 << 76 | 2 << 62
_RANDOM_7 = (1 << 80) - 1 & ~(0xF << 76 | 3 << 62)
_VERSION_8 = 8 << 76 | 2 << 62
_RANDOM_8 = (1 << 116) - 1 & ~(0xF << 76 | 3 << 62)
_SECONDS_TOGETHER = 16


def new_exchange_id() -> UUID:
    """A UUID of version 7: the time in milliseconds, then random bits."""
    return UUID(int=int(time.time() * 1000) << 80 | getrandbits(80) & _RANDOM_7 | _VERSION_7)


def new_session_id() -> UUID:
    """A UUID of version 8. Its first three digits are of the time, so that new sessions are close in every index."""
    moment = int(time.time()) // _SECONDS_TOGETHER % 4096
    return UUID(int=moment << 116 | getrandbits(116) & _RANDOM_8 | _VERSION_8)
