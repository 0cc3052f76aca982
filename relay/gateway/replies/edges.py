"""First and last bytes of a reply, which hold its id and its token counts."""

from __future__ import annotations

from contextlib import suppress

from relay.gateway.call.bodies import UnknownEncoding, Unreadable
from relay.gateway.replies.unpacking import Unpacking, unpack_prefix

EDGE_BYTES = 16 * 1024
# Of a reply as it came, and of the same unpacked.
MOST_KEPT, MOST_PLAIN = 4 * 1024 * 1024, 32 * 1024 * 1024


class Edges:
    """The beginning and the end of a reply, as it passes by."""

    __slots__ = ("_head", "_size", "_tail", "_tail_size")

    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._tail: list[bytes] = []
        self._size = self._tail_size = 0

    def add(self, chunk: bytes) -> None:
        if self._size < EDGE_BYTES:
            self._head.append(chunk)
        self._size += len(chunk)
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        if self._tail_size > 4 * EDGE_BYTES:
            self._tail = [self.tail]
            self._tail_size = EDGE_BYTES

    @property
    def head(self) -> bytes:
        return b"".join(self._head)[:EDGE_BYTES]

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail)[-EDGE_BYTES:]

    def beginning(self, encoding: str) -> bytes:
        """The head as it can be read."""
        if not encoding:
            return self.head
        plain = b""
        with suppress(UnknownEncoding, Unreadable):
            for piece in Unpacking(encoding).in_slices(self.head):
                plain += piece
                if len(plain) > EDGE_BYTES:
                    break
        return plain[:EDGE_BYTES]

    @property
    def size(self) -> int:
        return self._size


class ReplyCopy(Edges):
    """A reply as it passes by, all of it unless it is very long."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] | None = []

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        if self._pieces is not None:
            self._pieces.append(chunk)
            if self._size > MOST_KEPT:
                self._pieces = None

    @property
    def text(self) -> bytes | None:
        """All of it, where that was kept."""
        return None if self._pieces is None else b"".join(self._pieces)

    def plain(self, encoding: str) -> ReplyCopy:
        """The same unpacked; empty where it cannot be read."""
        if not encoding:
            return self
        packed = self.text
        text = None if packed is None else unpack_prefix(packed, encoding, limit=MOST_PLAIN)
        unpacked = ReplyCopy()
        if text:
            unpacked.add(text)
        return unpacked
