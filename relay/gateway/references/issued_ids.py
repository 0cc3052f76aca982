"""Ids that a reply gives to stored items: only the key that received one may use it.

Only the ids of the reply and of its own items count, because a caller can have the vendor repeat any text.
"""

from dataclasses import dataclass, field

from history.dialects import DIALECTS
from history.dialects.references import IssuedIds
from relay.gateway.call.calls import Call
from relay.gateway.call.decompression import PlainReply
from relay.runtime.event_loop import LARGE

# Of a whole reply, or of the long lines of a stream: images may be in either.
LONGEST_REPLY = 32 * 1024 * 1024
ANSWER_PREFIXES = ("resp_", "conv_")  # ids of replies and conversations


def stored_item_ids(reply: bytes) -> list[str]:
    """The ids of all items of a whole reply, or of a whole stream, that the vendor stores."""
    names: list[str] = []
    for dialect in DIALECTS.values():
        if dialect.HTTP_API.stores_answers and (issued := dialect.HTTP_API.issued_ids({})):
            scanner = IssuedIdScanner(issued)
            scanner.add(reply)
            names += scanner.end()
    return names


def scanner_for(call: Call, dialect: str) -> "IssuedIdScanner | None":
    """None if a call of this kind leaves nothing at the vendor that a later call could refer to."""
    issued: IssuedIds | None = None
    if call.address.kind == "other":
        # A listed path need not be one of the dialect of the caller.
        issued = next(filter(None, (known.HTTP_API.listed_ids(call.path) for known in DIALECTS.values())), None)
    elif call.address.kind == "chat" and dialect == call.address.dialect:
        issued = call.address.api.issued_ids(call.fields)
    return IssuedIdScanner(issued) if issued is not None else None


@dataclass(slots=True)
class IssuedIdScanner:
    """Reads a reply chunk by chunk; `found` is complete once it has ended.

    Lines of more than 64 KB, and a whole reply, are read by `end`, which may run in a thread.
    """

    issued: IssuedIds
    found: list[str] = field(default_factory=list)
    unread_size: int = 0
    _unread: list[bytes] = field(default_factory=list)
    # Of a whole reply, or of the incomplete last line of a stream.
    _pieces: list[bytes] = field(default_factory=list)
    _line_size: int = 0
    _is_stream: bool | None = None
    _plain: PlainReply = field(default_factory=PlainReply)

    def decompress(self, encoding: str) -> None:
        self._plain = PlainReply(encoding)

    def add(self, chunk: bytes) -> None:
        for piece in self._plain.pieces(chunk):
            self._add(piece)

    def end(self) -> list[str]:
        for text in (*self._unread, b"".join(self._pieces)):
            self._read(text)
        return self.found

    def _add(self, chunk: bytes) -> None:
        if self._is_stream is None:
            if not (opening := chunk.lstrip()[:1]):
                return
            self._is_stream = opening != b"{"
        if self._is_stream:
            self._add_lines(chunk)
        elif self.unread_size < LONGEST_REPLY:
            self._pieces.append(chunk)
            self.unread_size += len(chunk)

    def _add_lines(self, chunk: bytes) -> None:
        end = chunk.rfind(b"\n") + 1
        if end:
            lines = b"".join((*self._pieces, chunk[:end]))
            self.unread_size -= self._line_size
            self._pieces, self._line_size = [], 0
            if self.issued.mark in lines:
                self._read_lines(lines)
        if (rest := chunk[end:]) and self.unread_size < LONGEST_REPLY:
            self._pieces.append(rest)
            self._line_size += len(rest)
            self.unread_size += len(rest)

    def _read_lines(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            if self.issued.mark not in line:
                continue
            if len(line) > LARGE:
                self._unread.append(line)
                self.unread_size += len(line)
            else:
                self._read(line)

    def _read(self, text: bytes) -> None:
        try:
            parsed = self.issued.decoder.decode(text.removeprefix(b"data:"))
        except ValueError:
            return
        self.found += [name for name in self.issued.read(parsed) if name and not name.startswith(ANSWER_PREFIXES)]
