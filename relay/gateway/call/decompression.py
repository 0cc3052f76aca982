"""Decompression of request bodies, and of replies piece by piece.

Upstreams are asked for plain bytes, but some, or a proxy before them, compress all the same. What only passes through
may stay as it is; what is translated, counted or recorded must be read.
"""

import zlib
from collections.abc import Callable, Iterator

import zstandard

from relay.gateway.call.bodies import TooLarge
from relay.gateway.call.json_scanner import SLICE, Unreadable

READ_HERE = ("gzip", "deflate", "zstd")
MOST_ENCODINGS = 3
GZIP = 31  # zlib's number for it
REPLY_SLICE = 256  # of a compressed reply: a few bytes may become very many
# Answers are shorter. Beyond this, the relay does not look for the final event or for ids.
MOST_READ = 16 * 1024 * 1024


class UnknownEncoding(Exception):
    """Compressed in a way that is not read here."""


def _encodings(header: str) -> list[str]:
    """The last one that was applied comes first."""
    names = [name.strip().lower() for name in header.split(",")]
    return [name for name in reversed(names) if name not in ("", "identity")]


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
                plain = reader.read(limit + 1)
                if len(plain) > limit:
                    raise TooLarge
                return plain
        if encoding in ("gzip", "x-gzip", "deflate"):
            decoder, whole = _Deflate(0 if encoding == "deflate" else GZIP), bytearray()
            for start in range(0, len(body), SLICE):
                whole += decoder.decompress(body[start : start + SLICE])
                if len(whole) > limit:
                    raise TooLarge
            if not decoder.is_complete:
                raise Unreadable("the compressed body is incomplete")
            return bytes(whole)
    except (zlib.error, zstandard.ZstdError) as error:
        raise Unreadable(f"the body is not valid {encoding} ({error})") from None
    raise UnknownEncoding(encoding)


class Decompression:
    """`encoding` is the reply's header of that name. Raises UnknownEncoding at once, Unreadable while it is fed."""

    def __init__(self, encoding: str) -> None:
        self.codings = [(name, _coding(name)) for name in _encodings(encoding)]

    def in_slices(self, chunk: bytes, place: int = 0) -> Iterator[bytes]:
        """Through each coding a little at a time: what was compressed twice may grow twice."""
        if place == len(self.codings):
            yield chunk
            return
        name, decode = self.codings[place]
        for start in range(0, len(chunk), REPLY_SLICE):
            try:
                plain = decode(chunk[start : start + REPLY_SLICE])
            except (zlib.error, zstandard.ZstdError) as error:
                raise Unreadable(f"it is not valid {name} ({error})") from None
            if plain:
                yield from self.in_slices(plain, place + 1)


class PlainReply:
    """A reply decompressed for the relay's own reading, in pieces. It blocks the event loop, so its size is limited."""

    def __init__(self, encoding: str = "", *, most: int = MOST_READ) -> None:
        self._left, self.is_unreadable = most, False
        try:
            self._decompression = Decompression(encoding)
        except UnknownEncoding:
            self.is_unreadable = True

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Nothing more once the reply cannot be read, or is too long."""
        if self.is_unreadable:
            return
        if not self._decompression.codings:
            yield chunk
            return
        try:
            for piece in self._decompression.in_slices(chunk):
                self._left -= len(piece)
                if self._left < 0:
                    raise Unreadable("it is too long")
                yield piece
        except Unreadable:
            self.is_unreadable = True


def _coding(name: str) -> Callable[[bytes], bytes]:
    if name in ("gzip", "x-gzip"):
        return _Deflate(GZIP).decompress
    if name == "deflate":
        return _Deflate().decompress
    if name == "zstd":
        return zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj(read_across_frames=True).decompress
    raise UnknownEncoding(name)


class _Deflate:
    """gzip, which may have several members, and deflate, which some servers send without its header.

    To be fed small chunks, because zlib copies all that follows a member: of many small ones the whole chunk each time.
    """

    def __init__(self, wbits: int = 0) -> None:
        self._wbits = wbits
        self._opening = b""
        self._decompressor = zlib.decompressobj(wbits) if wbits else None

    @property
    def is_complete(self) -> bool:
        return self._decompressor is not None and self._decompressor.eof

    def decompress(self, chunk: bytes) -> bytes:
        if self._decompressor is None:
            chunk = self._opening = self._opening + chunk
            if len(chunk) < 2:
                return b""
            has_header = chunk[0] & 0x0F == 8 and int.from_bytes(chunk[:2], "big") % 31 == 0
            self._wbits = 15 if has_header else -15
            self._decompressor = zlib.decompressobj(self._wbits)
        pieces = []
        while chunk:
            if self._decompressor.eof:
                if self._wbits != GZIP or not (chunk := chunk.lstrip(b"\0")):
                    break
                self._decompressor = zlib.decompressobj(GZIP)
            pieces.append(self._decompressor.decompress(chunk))
            chunk = self._decompressor.unused_data
        return b"".join(pieces)
