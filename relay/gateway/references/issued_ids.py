"""Ids that a reply gives to stored items: only the key that received one may use it.

What counts is what a reply calls itself and its own items, not whatever stands in it: a caller can have the vendor
repeat any text. A stream is looked at line by line as it passes, a whole reply when it has ended; of replies that leave
nothing behind no copy is kept.
"""

from __future__ import annotations

from history.dialects import DIALECTS
from history.dialects.references import IssuedIds
from relay.gateway.call.bodies import UnknownEncoding, Unreadable
from relay.gateway.call.calls import Call
from relay.gateway.replies.unpacking import BoundedUnpacking
from relay.runtime.parsing import LARGE

# Of a whole reply, or of the long lines of a stream: pictures may be in either.
LONGEST_REPLY = 32 * 1024 * 1024
# What replies and conversations are called: nothing else goes by such a name.
ANSWER_PREFIXES = ("resp_", "conv_")


def stored_item_ids(reply: bytes) -> list[str]:
    """The ids of all items that the vendor stores of a whole reply, or of a whole stream."""
    names: list[str] = []
    for dialect in DIALECTS.values():
        if dialect.HTTP_API.stores_answers and (issued := dialect.HTTP_API.issued_ids({})):
            scanner = IssuedIdScanner(issued)
            scanner.add(reply)
            names += scanner.end()
    return names


def scanner_for(call: Call, dialect: str) -> IssuedIdScanner | None:
    """None where a call of this kind leaves nothing at the vendor that a later one could name."""
    issued = _issued_ids(call, dialect)
    return IssuedIdScanner(issued) if issued is not None else None


def _issued_ids(call: Call, dialect: str) -> IssuedIds | None:
    if call.address.kind == "other":
        # The path of a listed address need not be one of the dialect that its caller speaks.
        listed = (known.HTTP_API.listed_ids(call.path) for known in DIALECTS.values())
        return next((issued for issued in listed if issued), None)
    if call.address.kind != "chat" or dialect != call.address.dialect:
        return None
    return call.address.api.issued_ids(call.asked)


class IssuedIdScanner:
    """Fed with a reply as it passes by; `found` is complete once it has ended.

    Lines of more than 64 KB, and a whole reply, are read by `end`, which may run in a thread.
    """

    __slots__ = (
        *("_is_stream", "_is_unreadable", "_line", "_line_size", "_look", "_pieces", "_unpacking", "_unread", "found"),
        "unread_size",
    )

    def __init__(self, look: IssuedIds) -> None:
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
        self.found += [name for name in self._look.read(told) if name and not name.startswith(ANSWER_PREFIXES)]
