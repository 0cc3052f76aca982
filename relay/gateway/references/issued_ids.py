"""What a reply calls the things that the vendor keeps of it: only the key that was given a name may use it.

What counts is what a reply calls itself and its own items, not whatever stands in it: a caller can have the vendor
repeat any text. A stream is looked at line by line as it passes, a whole reply when it has ended; of replies that leave
nothing behind no copy is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from relay.gateway.call.addresses import ANTHROPIC, CHAT, RESPONSES
from relay.gateway.call.bodies import UnknownEncoding, Unreadable
from relay.gateway.call.body_peek import Thing, is_whole
from relay.gateway.call.calls import Call
from relay.gateway.upstream.unpacking import BoundedUnpacking
from relay.runtime.parsing import LARGE

# Of a whole reply, or of the long lines of a stream: pictures may be in either.
LONGEST_REPLY = 32 * 1024 * 1024
# What replies and conversations are called: nothing else goes by such a name.
OF_REPLIES = ("resp_", "conv_")
LISTED = ("/v1/responses/", "/v1/conversations")


class _Named(msgspec.Struct):
    id: str | None = None


class _Given(Thing):
    container_id: str | None = None


class _OfResponses(msgspec.Struct):
    """An event that brings an item, a whole reply, or a list of items."""

    type: str | None = None
    item: _Given | None = None
    output: list[_Given] | None = None
    data: list[_Given] | None = None


class _OfAnthropic(msgspec.Struct):
    container: _Named | None = None
    message: _OfAnthropic | None = None
    delta: _OfAnthropic | None = None


class _Said(msgspec.Struct):
    audio: _Named | None = None


class _Choice(msgspec.Struct):
    message: _Said | None = None
    delta: _Said | None = None


class _OfChat(msgspec.Struct):
    choices: list[_Choice] | None = None


def _kept(told: _OfResponses) -> Iterator[str | None]:
    for given in (told.item, *(told.output or ()), *(told.data or ())):
        if given is not None:
            yield from (given.id, given.container_id)


def _not_kept(told: _OfResponses) -> Iterator[str | None]:
    """The vendor keeps nothing, so a name matters only where the client has nothing but the name to send back."""
    done = told.item if told.type == "response.output_item.done" else None
    for given in (done, *(told.output or ())):
        if given is not None and not is_whole(given):
            yield given.id


def _containers(told: _OfAnthropic) -> Iterator[str | None]:
    for one in (told, told.message, told.delta):
        if one is not None and one.container is not None:
            yield one.container.id


def _sounds(told: _OfChat) -> Iterator[str | None]:
    for choice in told.choices or ():
        for said in (choice.message, choice.delta):
            if said is not None and said.audio is not None:
                yield said.audio.id


class _Look(NamedTuple):
    """`mark` stands in every event of a stream that is worth reading."""

    mark: bytes
    decoder: msgspec.json.Decoder[Any]
    names: Callable[[Any], Iterator[str | None]]


_items = msgspec.json.Decoder(_OfResponses)
ITEMS_KEPT = _Look(b'"response.output_item.', _items, _kept)
ITEMS_NOT_KEPT = _Look(b'"response.output_item.done', _items, _not_kept)
CONTAINERS = _Look(b'"container"', msgspec.json.Decoder(_OfAnthropic), _containers)
SOUNDS = _Look(b'"audio"', msgspec.json.Decoder(_OfChat), _sounds)


def items_kept(reply: bytes) -> list[str]:
    """The names of the items of a whole reply, or of a whole stream, that its vendor keeps."""
    names = Names(ITEMS_KEPT)
    names.add(reply)
    return names.end()


def names_to_note(call: Call, dialect: str) -> Names | None:
    """Nothing, where a call of this kind leaves nothing at the vendor that a later one could name."""
    look = _look(call, dialect)
    return Names(look) if look is not None else None


def _look(call: Call, dialect: str) -> _Look | None:
    asked, kind = call.asked, call.address.kind
    if kind == "other":
        return ITEMS_KEPT if call.path.startswith(LISTED) else None
    if kind != "chat" or dialect != call.address.dialect:
        return None
    if dialect == RESPONSES:
        return ITEMS_NOT_KEPT if asked.get("store") is False else ITEMS_KEPT
    if dialect == ANTHROPIC:
        return CONTAINERS if "container" in asked or _has_tools_of_the_vendor(asked.get("tools")) else None
    return SOUNDS if dialect == CHAT and asked.get("audio") else None


def _has_tools_of_the_vendor(tools: Any) -> bool:
    """They run in a container; the caller's own have no type, or say `custom`."""
    return any(getattr(tool, "type", None) not in (None, "custom") for tool in tools or ())


class Names:
    """Fed with a reply as it passes by; `found` is complete once it has ended.

    Lines of more than 64 KB, and a whole reply, are read by `end`, which may run in a thread.
    """

    __slots__ = (
        *("_is_stream", "_is_unreadable", "_line", "_line_size", "_look", "_pieces", "_unpacking", "_unread", "found"),
        "unread_size",
    )

    def __init__(self, look: _Look) -> None:
        self._look = look
        self._is_stream: bool | None = None
        self._is_unreadable = False
        # The line of a stream that has no end yet, in the pieces in which it came.
        self._line: list[bytes] = []
        self._line_size = 0
        self._pieces: list[bytes] = []
        self._unread: list[bytes] = []
        self.unread_size = 0
        self._unpacking: BoundedUnpacking | None = None
        self.found: list[str] = []

    def unpack(self, encoding: str) -> None:
        try:
            self._unpacking = BoundedUnpacking(encoding)
        except UnknownEncoding:
            self._is_unreadable = True

    def add(self, chunk: bytes) -> None:
        if self._is_unreadable:
            return
        if self._unpacking is None:
            self._add(chunk)
            return
        try:
            for piece in self._unpacking.pieces(chunk):
                self._add(piece)
        except Unreadable:
            self._is_unreadable = True

    def end(self) -> list[str]:
        for said in (*self._unread, b"".join(self._line or self._pieces)):
            self._read(said)
        return self.found

    def _add(self, chunk: bytes) -> None:
        if self._is_stream is None and (opening := chunk.lstrip()[:1]):
            self._is_stream = opening != b"{"
        if self._is_stream:
            self._add_lines(chunk)
        elif self.unread_size < LONGEST_REPLY:
            self._pieces.append(chunk)
            self.unread_size += len(chunk)

    def _add_lines(self, chunk: bytes) -> None:
        end = chunk.rfind(b"\n") + 1
        if end:
            said = b"".join((*self._line, chunk[:end]))
            self.unread_size -= self._line_size
            self._line, self._line_size = [], 0
            if self._look.mark in said:
                self._read_lines(said)
        if (rest := chunk[end:]) and self.unread_size < LONGEST_REPLY:
            self._line.append(rest)
            self._line_size += len(rest)
            self.unread_size += len(rest)

    def _read_lines(self, said: bytes) -> None:
        for line in said.split(b"\n"):
            if self._look.mark not in line:
                continue
            if len(line) > LARGE:
                self._unread.append(line)
                self.unread_size += len(line)
            else:
                self._read(line)

    def _read(self, said: bytes) -> None:
        try:
            told = self._look.decoder.decode(said.removeprefix(b"data:"))
        except ValueError:
            return
        self.found += [name for name in self._look.names(told) if name and not name.startswith(OF_REPLIES)]
