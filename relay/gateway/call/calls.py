"""One relayed call: its path and kind, the request, and what is known of it before it is sent.

The paths are the vendors' own (`HttpApi.paths`). Any other path is refused, because files, batches and stored answers
of all keys share one account upstream. An operator can list further paths in the file of PARLEY_PROVIDERS.
"""

import re
import time
from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import getrandbits
from urllib.parse import quote, unquote
from uuid import UUID

from history.dialects import DEFAULT_DIALECT, DIALECTS
from history.dialects.http_api import CallKind, HttpApi
from history.dialects.json_access import items, obj, string
from history.dialects.references import Reference
from history.dialects.types import ConversationEntry
from history.entries import JsonObject
from history.models import ApiKey
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.headers import Pairs
from relay.gateway.call.logins import Login
from relay.gateway.call.session_ids import NOT_NAMED, SessionName
from relay.gateway.journal.records import Attempt
from relay.runtime.asgi import Headers
from relay.usage.prices import NO_USE, Use

_DOT_SEGMENT = re.compile(r"[/\\]\.{1,2}(?:[/\\]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`model` and `verb` are set for dialects that have them in the path. `path` is quoted as on the wire."""

    dialect: str
    kind: CallKind
    path: str
    model: str = ""
    verb: str = ""

    @property
    def api(self) -> HttpApi:
        return DIALECTS[self.dialect].HTTP_API

    def with_model(self, model: str) -> "Address":
        if not self.model:
            return self
        path = self.api.path_for_model(self.path, model=model, verb=self.verb)
        return replace(self, path=path, model=model)


_KNOWN = {
    path: Address(dialect=name, kind=kind, path=path)
    for name, dialect in DIALECTS.items()
    for path, kind in dialect.HTTP_API.paths.items()
}


def find_address(method: str, path: str, raw: bytes = b"") -> Address | None:
    """`path` is decoded; `raw` is the same as the caller wrote it, and is sent on."""
    if method != "POST":
        return None
    if known := _KNOWN.get(path):
        return known
    for name, dialect in DIALECTS.items():
        found = dialect.HTTP_API.match_path(path)
        if found and not has_dot_segments(path):
            quoted = quote_path(path, raw)
            return Address(dialect=name, kind=found.kind, path=quoted, model=found.model, verb=found.verb)
    return None


def has_dot_segments(path: str) -> bool:
    """Whether a server that normalises the path, or decodes it again, would see another one than was checked."""
    return bool(_DOT_SEGMENT.search(path) or _DOT_SEGMENT.search(unquote(path)))


def quote_path(path: str, raw: bytes) -> str:
    """As the caller wrote it; characters that a URL cannot have are escaped."""
    return quote(raw.partition(b"?")[0] or path.encode("utf-8", "surrogatepass"), safe="/%:@!$&'()*+,;=~")


def guess_dialect(path: str, headers: Mapping[str, str]) -> str:
    """The dialect of a caller at any path, so that its client can read the error."""
    if known := _KNOWN.get(path):
        return known.dialect
    callers = (name for name, dialect in DIALECTS.items() if dialect.HTTP_API.is_caller(path, headers))
    return next(callers, DEFAULT_DIALECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierConversation:
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
    query: str = field(repr=False)
    pairs: Pairs = field(repr=False)
    wire_headers: Pairs = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    peer: str
    exchange: UUID
    name: str  # of the exchange: it is used several times
    at: float = field(default_factory=time.time)
    key: ApiKey
    login: Login | None = None
    is_model_list: bool = False  # it asks a plan for its models, in the vendor's own form
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
    earlier: EarlierConversation | None = None
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

    def mask(self, text: str) -> str:
        """The text without the caller's login."""
        return self.login.mask(text) if self.login is not None else text

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
