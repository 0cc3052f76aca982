"""One relayed call: the request, and what is known of it before it is sent."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from history.dialects.json_access import items, obj, string
from history.dialects.references import Reference
from history.dialects.types import Said
from history.models import ApiKey
from relay.gateway.call import headers as heads
from relay.gateway.call.addresses import Address
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.session_ids import NOT_NAMED, SessionName
from relay.gateway.journal.records import Attempt
from relay.usage.amounts import NO_USE, Use

Scope = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The conversation that a call continues by name. `size` is about how many bytes it is.

    `system` are instructions among its items, which stay. The record does not tell them from those of one request:
    `recorded_system` counts where the new request has none.
    """

    entries: tuple[Said, ...]
    system: str = ""
    recorded_system: str = ""
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    size: int = 0


@dataclass(slots=True, kw_only=True)
class Call:
    """`body` and `wire`, its headers, are what goes on, `told` and `pairs` the same as they can be read; `asked` is
    what a glance at the body shows, `refers` what it names of what lies at the vendor."""

    loop: AbstractEventLoop  # in which it is carried; to ask for it takes a system call
    method: str
    path: str
    query: str
    pairs: heads.Pairs
    wire: heads.Pairs
    headers: dict[str, str]
    peer: str
    exchange: UUID
    name: str = ""
    at: float = field(default_factory=time.time)
    key: ApiKey
    recording: str = "off"
    is_limited: bool = False
    spent: Use = NO_USE
    address: Address
    body: bytes = b""
    told: bytes = b""
    asked: Mapping[str, Any] = field(default_factory=dict)
    refers: Sequence[Reference] = ()
    model: str = ""
    naming: SessionName = NOT_NAMED
    has_lost_session_field: bool = False
    is_changed: bool = False
    # It goes on from what one of several upstreams has; nobody here knows which.
    is_looked_for: bool = False
    earlier: Earlier | None = None
    lasting_system: str = ""
    attempts: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = str(self.exchange)  # it is asked for several times

    def see(self, asked: Mapping[str, Any], refers: Sequence[Reference] = ()) -> None:
        self.asked, self.refers = asked, refers
        self.model = self.address.model or string(asked.get("model"))

    @property
    def wants_stream(self) -> bool:
        return self.address.api.wants_stream(self.asked, self.address.verb)

    def all_asked(self) -> Mapping[str, Any]:
        """The whole object, read anew: only where a call is translated or must choose its way."""
        return parse_object(self.told)

    def sticky(self) -> bytes:
        """What stays the same while a conversation goes on: its session, else how it began."""
        if self.naming.session:
            return self.naming.session.bytes
        return f"{self.key.pk}\0{_beginning(self.all_asked())!r}".encode("utf-8", "surrogatepass")


def _beginning(asked: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """All up to the first thing that a person said: many conversations have the same instructions before that."""
    said = next((asked[name] for name in ("messages", "contents", "input") if asked.get(name)), ())
    turns = [{"role": "user", "content": said}] if isinstance(said, str) else [obj(turn) for turn in items(said)]
    first = next((place for place, turn in enumerate(turns) if turn.get("role") == "user"), 0)
    return [(string(turn.get("role")), _parts(turn)) for turn in turns[: first + 1]]


def _parts(turn: Mapping[str, Any]) -> list[Any]:
    """What stays as it is: the mark up to which a prompt is cached moves on, and leaves a text where a block was."""
    content = turn.get("content")
    if isinstance(content, str):
        return [content]
    parts = [obj(part) for part in items(content) or items(turn.get("parts"))]
    return [string(part.get("text")) or {k: v for k, v in part.items() if k != "cache_control"} for part in parts]
