"""Character encoding of a file: detection and conversion to UTF-8.

A mark at the beginning decides; without one, zeros between the letters mean UTF-16, and bytes that are not UTF-8 mean
Windows-1252 (which has Latin-1 in it) if there are more of them than of UTF-8's own.
"""

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from history.text.lazy import gettext_noop as _

CHUNK = 1024 * 1024
CONVERTED = _("The file was in UTF-16 or UTF-32 and was converted.")
REPLACED = _("Some bytes are not valid UTF-8. They were replaced.")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Encoding(NamedTuple):
    """`problem` is a note for the import report; empty means none."""

    name: str
    problem: str = ""


UTF_8 = Encoding("utf-8")


def detect_encoding(stream: BinaryIO) -> Encoding:
    head = stream.read(CHUNK)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, "" if name == "utf-8-sig" else CONVERTED)
    # JSON begins with two ASCII characters: where the zeros are tells how it is written.
    if [byte != 0 for byte in head[:4]] in ([True, False, True, False], [False, True, False, True]):
        return Encoding("utf-16-le" if head[0] else "utf-16-be", CONVERTED)
    return _eight_bits(head, stream)


def _eight_bits(head: bytes, stream: BinaryIO) -> Encoding:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    wrong, right, chunk = 0, 0, head
    while chunk:
        if not chunk.isascii() or decoder.getstate()[0]:
            text = decoder.decode(chunk)
            bad = text.count("\ufffd") - chunk.count(b"\xef\xbf\xbd")
            wrong += max(bad, 0)
            right += sum(1 for char in text if char > "\x7f") - max(bad, 0)
        chunk = stream.read(CHUNK)
    if not wrong:
        return UTF_8
    if wrong > right:
        return Encoding("cp1252", _("The file is not UTF-8. It was read as Windows-1252 (Latin-1)."))
    return Encoding("utf-8", REPLACED)


def as_utf_8(stream: BinaryIO, encoding: Encoding) -> BinaryIO:
    """The same file, always UTF-8 without a mark."""
    return stream if encoding == UTF_8 else io.BufferedReader(PieceStream(_converted(stream, encoding), stream), CHUNK)


def _converted(stream: BinaryIO, encoding: Encoding) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding.name)("replace")
    while chunk := stream.read(CHUNK):
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


class PieceStream(io.RawIOBase):
    """A file that consists of these pieces, which are made from another file."""

    def __init__(self, pieces: Iterator[bytes], source: BinaryIO) -> None:
        self._pieces, self._source, self._left = filter(None, pieces), source, b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        content = self._left or next(self._pieces, b"")
        size = min(len(target), len(content))
        target[:size], self._left = content[:size], content[size:]
        return size

    def close(self) -> None:
        self._source.close()
        super().close()
