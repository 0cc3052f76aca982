"""Decompression of replies, piece by piece as they arrive.

Upstreams are asked for plain bytes, but some, or a proxy before them, compress all the same. What only passes through
may stay as it is; what is to be translated, counted or recorded must be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard

from relay.gateway.call.bodies import UnknownEncoding, Unreadable

# So much at a time: a few bytes may become very many.
SLICE = 256
# Answers are shorter. Behind this, the relay does not look for the final event or for names any more.
MOST_LOOKED_AT = 16 * 1024 * 1024


class _Coding(Protocol):
    def feed(self, chunk: bytes) -> bytes: ...


class Unpacking:
    """`encoding` is the reply's header of that name. Raises UnknownEncoding at once, Unreadable while it is fed."""

    def __init__(self, encoding: str) -> None:
        words = [word.strip().lower() for word in encoding.split(",")]
        self._codings = [(word, _coding(word)) for word in reversed(words) if word not in ("", "identity")]

    def feed(self, chunk: bytes) -> bytes:
        for place in range(len(self._codings)):
            chunk = self._feed_one(place, chunk)
        return chunk

    def in_slices(self, chunk: bytes, place: int = 0) -> Iterator[bytes]:
        """Through each coding a little at a time: what was packed twice may grow twice."""
        if place == len(self._codings):
            yield chunk
            return
        for start in range(0, len(chunk), SLICE):
            if plain := self._feed_one(place, chunk[start : start + SLICE]):
                yield from self.in_slices(plain, place + 1)

    def _feed_one(self, place: int, chunk: bytes) -> bytes:
        word, coding = self._codings[place]
        try:
            return coding.feed(chunk)
        except (zlib.error, zstandard.ZstdError) as error:
            raise Unreadable(f"it is not {word} ({error})") from None


def in_slices(unpacking: Unpacking, chunk: bytes) -> Iterator[bytes]:
    """Piece by piece, for whoever need not hold all of it or wants to stop at some size."""
    yield from unpacking.in_slices(chunk)


class TooLong(Unreadable):
    """More bytes came out than are wanted."""


class BoundedUnpacking:
    """Unpacks a reply for the relay's own look at it: in pieces of bounded size, and only so many bytes in all.

    The client gets the reply as it came. A few kilobytes may unpack to gigabytes, and this work holds the event loop.
    """

    __slots__ = ("_left", "_unpacking")

    def __init__(self, encoding: str, *, most: int = MOST_LOOKED_AT) -> None:
        self._unpacking, self._left = Unpacking(encoding), most

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Raises Unreadable for what cannot be unpacked, and TooLong."""
        for piece in self._unpacking.in_slices(chunk):
            self._left -= len(piece)
            if self._left < 0:
                raise TooLong("it is too long")
            yield piece


def unpack_prefix(body: bytes, encoding: str, *, limit: int) -> bytes | None:
    """What came of a reply in plain bytes, also if it broke off; None where it cannot be read or is longer."""
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in in_slices(Unpacking(encoding), body):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                return None
    except (UnknownEncoding, Unreadable):
        return None
    return b"".join(pieces)


def _coding(word: str) -> _Coding:
    if word in ("gzip", "x-gzip"):
        return _Inflating(wbits=31)
    if word == "deflate":
        return _Inflating()
    if word == "zstd":
        return _Zstandard()
    raise UnknownEncoding(word)


class _Zstandard:
    def __init__(self) -> None:
        self._inflating = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj(read_across_frames=True)

    def feed(self, chunk: bytes) -> bytes:
        return self._inflating.decompress(chunk)


class _Inflating:
    """gzip, which may come in several members, and deflate, which comes with a header or, from some, without."""

    def __init__(self, *, wbits: int = 0) -> None:
        self._wbits = wbits
        self._opening = b""
        self._inflating = zlib.decompressobj(wbits) if wbits else None

    def feed(self, chunk: bytes) -> bytes:
        if self._inflating is None:
            chunk = self._opening = self._opening + chunk
            if len(chunk) < 2:
                return b""
            self._wbits = _wbits_of_deflate(chunk)
            self._inflating = zlib.decompressobj(self._wbits)
        pieces = []
        # In slices, because zlib copies all that follows a member: with many small ones the whole chunk for each.
        for start in range(0, len(chunk), SLICE):
            rest = chunk[start : start + SLICE]
            pieces.append(self._inflating.decompress(rest))
            while self._inflating.eof and self._wbits == 31 and (rest := self._inflating.unused_data):
                self._inflating = zlib.decompressobj(self._wbits)
                pieces.append(self._inflating.decompress(rest))
        return b"".join(pieces)


def _wbits_of_deflate(opening: bytes) -> int:
    return 15 if opening[0] & 0x0F == 8 and int.from_bytes(opening[:2], "big") % 31 == 0 else -15
