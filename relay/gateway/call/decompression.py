"""Decompression of request bodies, and of replies piece by piece.

Upstreams are asked for plain bytes, but some, or a proxy before them, compress all the same. What only passes through
may stay as it is; what is translated, counted or recorded must be read.
"""

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard

from relay.gateway.call.bodies import TooLarge
from relay.gateway.call.json_scanner import SLICE, Unreadable

READ_HERE = ("gzip", "deflate", "zstd")
MOST_ENCODINGS = 3
GZIP = 31  # zlib's number for it
# Of a compressed reply: a few bytes may become very many.
REPLY_SLICE = 256
# Answers are shorter. Beyond this, the relay does not look for the final event or for ids.
MOST_READ = 16 * 1024 * 1024


class UnknownEncoding(Exception):
    """Compressed in a way that is not read here."""


def _encodings(header: str) -> list[str]:
    """The last one that was applied comes first."""
    names = [name.strip().lower() for name in header.split(",")]
    return [name for name in reversed(names) if name not in ("", "identity")]


# Requests.


def decompress(body: bytes, encoding: str, *, limit: int) -> bytes:
    """Raises TooLarge as soon as a small body becomes a large one, Unreadable and UnknownEncoding."""
    names = _encodings(encoding)
    if len(names) > MOST_ENCODINGS:
        raise Unreadable(f"it is compressed more than {MOST_ENCODINGS} times")
    for name in names:
        body = _decompress(body, name, limit)
    return body


def _decompress(body: bytes, encoding: str, limit: int) -> bytes:
    try:
        if encoding == "zstd":
            decompressor = zstandard.ZstdDecompressor(max_window_size=2**27)
            with decompressor.stream_reader(body, read_across_frames=True) as reader:
                whole = reader.read(limit + 1)
                if len(whole) > limit:
                    raise TooLarge
                return whole
        if encoding in ("gzip", "x-gzip", "deflate"):
            return _inflate(body, limit, wbits=_deflate_wbits(body) if encoding == "deflate" else GZIP)
    except (zlib.error, zstandard.ZstdError) as error:
        raise Unreadable(f"the body is not {encoding} ({error})") from None
    raise UnknownEncoding(encoding)


def _inflate(body: bytes, limit: int, *, wbits: int) -> bytes:
    """A gzip may have several members. In slices, because zlib copies all that follows a member: with many small ones
    that would be the whole body for each of them."""
    whole, decompressor = bytearray(), zlib.decompressobj(wbits)
    for start in range(0, len(body), SLICE):
        rest = body[start : start + SLICE]
        while rest and not (decompressor.eof and wbits != GZIP):
            if decompressor.eof:
                if not (rest := rest.lstrip(b"\0")):
                    break
                decompressor = zlib.decompressobj(wbits)
            whole += decompressor.decompress(rest, limit + 1 - len(whole))
            if len(whole) > limit:
                raise TooLarge
            rest = decompressor.unused_data
    if not decompressor.eof:
        raise Unreadable("the compressed body is cut off")
    return bytes(whole)


# Replies.


class _Coding(Protocol):
    def feed(self, chunk: bytes) -> bytes: ...


class Decompression:
    """`encoding` is the reply's header of that name. Raises UnknownEncoding at once, Unreadable while it is fed."""

    def __init__(self, encoding: str) -> None:
        self._codings = [(name, _coding(name)) for name in _encodings(encoding)]

    def feed(self, chunk: bytes) -> bytes:
        for place in range(len(self._codings)):
            chunk = self._feed_one(place, chunk)
        return chunk

    def in_slices(self, chunk: bytes, place: int = 0) -> Iterator[bytes]:
        """Through each coding a little at a time: what was compressed twice may grow twice."""
        if place == len(self._codings):
            yield chunk
            return
        for start in range(0, len(chunk), REPLY_SLICE):
            if plain := self._feed_one(place, chunk[start : start + REPLY_SLICE]):
                yield from self.in_slices(plain, place + 1)

    def _feed_one(self, place: int, chunk: bytes) -> bytes:
        name, coding = self._codings[place]
        try:
            return coding.feed(chunk)
        except (zlib.error, zstandard.ZstdError) as error:
            raise Unreadable(f"it is not {name} ({error})") from None


class TooLong(Unreadable):
    """More bytes came out than the relay reads."""


class BoundedDecompression:
    """Decompresses a reply for the relay's own reading: in pieces of bounded size, up to a total size.

    A few kilobytes may become gigabytes, and this work blocks the event loop.
    """

    __slots__ = ("_decompression", "_left")

    def __init__(self, encoding: str, *, most: int = MOST_READ) -> None:
        self._decompression, self._left = Decompression(encoding), most

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Raises Unreadable and TooLong."""
        for piece in self._decompression.in_slices(chunk):
            self._left -= len(piece)
            if self._left < 0:
                raise TooLong("it is too long")
            yield piece


def decompress_prefix(body: bytes, encoding: str, *, limit: int) -> bytes | None:
    """What came of a reply, also if it broke off; None if it cannot be read or is longer."""
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in Decompression(encoding).in_slices(body):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                return None
    except (UnknownEncoding, Unreadable):
        return None
    return b"".join(pieces)


def _coding(name: str) -> _Coding:
    if name in ("gzip", "x-gzip"):
        return _Deflate(wbits=GZIP)
    if name == "deflate":
        return _Deflate()
    if name == "zstd":
        return _Zstandard()
    raise UnknownEncoding(name)


class _Zstandard:
    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj(read_across_frames=True)

    def feed(self, chunk: bytes) -> bytes:
        return self._decompressor.decompress(chunk)


class _Deflate:
    """gzip, which may have several members, and deflate, which some servers send without its header."""

    def __init__(self, *, wbits: int = 0) -> None:
        self._wbits = wbits
        self._opening = b""
        self._decompressor = zlib.decompressobj(wbits) if wbits else None

    def feed(self, chunk: bytes) -> bytes:
        if self._decompressor is None:
            chunk = self._opening = self._opening + chunk
            if len(chunk) < 2:
                return b""
            self._wbits = _deflate_wbits(chunk)
            self._decompressor = zlib.decompressobj(self._wbits)
        pieces = []
        # In slices, because zlib copies all that follows a member: with many small ones the whole chunk for each.
        for start in range(0, len(chunk), REPLY_SLICE):
            rest = chunk[start : start + REPLY_SLICE]
            pieces.append(self._decompressor.decompress(rest))
            while self._decompressor.eof and self._wbits == GZIP and (rest := self._decompressor.unused_data):
                self._decompressor = zlib.decompressobj(self._wbits)
                pieces.append(self._decompressor.decompress(rest))
        return b"".join(pieces)


def _deflate_wbits(opening: bytes) -> int:
    return 15 if len(opening) > 1 and opening[0] & 0x0F == 8 and int.from_bytes(opening[:2], "big") % 31 == 0 else -15
