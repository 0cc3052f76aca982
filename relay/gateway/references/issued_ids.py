"""Ids that a reply gives to stored items: only the key that received one may use it.

Only the ids of the reply and of its own items count, because a caller can have the vendor repeat any text. A stream is
read line by line as it passes, a whole reply when it has ended. Replies that leave nothing at the vendor are not
copied.
"""

from __future__ import annotations

from history.dialects import DIALECTS
from history.dialects.references import IssuedIds
from relay.gateway.call.calls import Call
from relay.gateway.call.decompression import BoundedDecompression, UnknownEncoding
from relay.gateway.call.json_scanner import Unreadable
from relay.runtime.event_loop import LARGE

# Of a whole reply, or of the long lines of a stream: images may be in either.
LONGEST_REPLY = 32 * 1024 * 1024
# Ids of replies and conversations.
ANSWER_PREFIXES = ("resp_", "conv_")


def stored_item_ids(reply: bytes) -> list[str]:
    """The ids of all items of a whole reply, or of a whole stream, that the vendor stores."""
    names: list[str] = []
    for dialect in DIALECTS.values():
        if dialect.HTTP_API.stores_answers and (issued := dialect.HTTP_API.issued_ids({})):
            scanner = IssuedIdScanner(issued)
            scanner.add(reply)
            names += scanner.end()
    return names


def scanner_for(call: Call, dialect: str) -> IssuedIdScanner | None:
    """None if a call of this kind leaves nothing at the vendor that a later call could refer to."""
    issued: IssuedIds | None = None
    if call.address.kind == "other":
        # A listed path need not be one of the dialect of the caller.
        listed = (known.HTTP_API.listed_ids(call.path) for known in DIALECTS.values())
        issued = next(filter(None, listed), None)
    elif call.address.kind == "chat" and dialect == call.address.dialect:
        issued = call.address.api.issued_ids(call.fields)
    return IssuedIdScanner(issued) if issued is not None else None


class IssuedIdScanner:
    """Reads a reply chunk by chunk; `found` is complete once it has ended.

    Lines of more than 64 KB, and a whole reply, are read by `end`, which may run in a thread.
    """

    __slots__ = (
        *("_decompression", "_is_stream", "_is_unreadable", "_issued", "_line", "_line_size", "_pieces", "_unread"),
        *("found", "unread_size"),
    )

    def __init__(self, issued: IssuedIds) -> None:
        self._issued = issued
        self._is_stream: bool | None = None
        self._is_unreadable = False
        # The pieces of the incomplete last line of a stream.
        self._line: list[bytes] = []
        self._line_size = 0
        self._pieces: list[bytes] = []
        self._unread: list[bytes] = []
        self.unread_size = 0
        self._decompression: BoundedDecompression | None = None
        self.found: list[str] = []

    def decompress(self, encoding: str) -> None:
        try:
            self._decompression = BoundedDecompression(encoding)
        except UnknownEncoding:
            self._is_unreadable = True

    def add(self, chunk: bytes) -> None:
        if self._is_unreadable:
            return
        if self._decompression is None:
            self._add(chunk)
            return
        try:
            for piece in self._decompression.pieces(chunk):
                self._add(piece)
        except Unreadable:
            self._is_unreadable = True

    def end(self) -> list[str]:
        for text in (*self._unread, b"".join(self._line or self._pieces)):
            self._read(text)
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
            lines = b"".join((*self._line, chunk[:end]))
            self.unread_size -= self._line_size
            self._line, self._line_size = [], 0
            if self._issued.mark in lines:
                self._read_lines(lines)
        if (rest := chunk[end:]) and self.unread_size < LONGEST_REPLY:
            self._line.append(rest)
            self._line_size += len(rest)
            self.unread_size += len(rest)

    def _read_lines(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            if self._issued.mark not in line:
                continue
            if len(line) > LARGE:
                self._unread.append(line)
                self.unread_size += len(line)
            else:
                self._read(line)

    def _read(self, text: bytes) -> None:
        try:
            parsed = self._issued.decoder.decode(text.removeprefix(b"data:"))
        except ValueError:
            return
        self.found += [name for name in self._issued.read(parsed) if name and not name.startswith(ANSWER_PREFIXES)]
