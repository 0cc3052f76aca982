"""Bytes of any size in, whole server-sent events out; and whole JSON objects, for those who stream these instead.

Lines may end in LF, CR or CRLF; a chunk may end anywhere, even inside a character. What is held back is kept in pieces
and joined once, so that a long line in many chunks costs no more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from history.dialects.json_access import as_bytes

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
# Signs that end no line of a stream, and do all the same for clients that let Python split it, as Google's SDK does.
_SEPARATORS = {sign.encode(): f"\\u{ord(sign):04x}".encode() for sign in "\x85\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    name: str
    data: str


def sse(data: object, *, name: str = "") -> bytes:
    """One event, ready to be sent."""
    written = data.encode() if isinstance(data, str) else _on_one_line(as_bytes(data))
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + written + b"\n\n"


def _on_one_line(written: bytes) -> bytes:
    for sign, escaped in _SEPARATORS.items():
        written = written.replace(sign, escaped)
    return written


class Lines:
    """Whole lines, without their ends."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._after_cr = False
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk, self._after_cr = chunk[1:], False
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        first, *rest = _LINE_END.split(chunk)
        self._held.append(first)
        for piece in rest:
            yield self._take()
            self._held.append(piece)

    def close(self) -> bytes:
        """What stands after the last line end."""
        return self._take()

    def _take(self) -> bytes:
        line = b"".join(self._held)
        self._held.clear()
        if self._is_first:
            self._is_first = False
            return line.removeprefix(_BOM)
        return line


class SSEDecoder:
    """Server-sent events. A last one without its empty line counts: not every server writes that."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        for line in self._lines.feed(chunk):
            yield from self._read(line)

    def close(self) -> Iterator[ServerSentEvent]:
        yield from self._read(self._lines.close())
        yield from self._read(b"")

    def _read(self, line: bytes) -> Iterator[ServerSentEvent]:
        if not line:
            if self._data:
                yield ServerSentEvent(self._name, "\n".join(self._data))
            self._name, self._data = "", []
            return
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value


class Documents:
    """The outermost JSON objects of a text, each as soon as it is whole; an array around them is not theirs."""

    _MARKS = re.compile(rb'[{}"\\]')

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        start = skip_to = 0
        if self._escaped and chunk:
            self._escaped, skip_to = False, 1
        for mark in self._MARKS.finditer(chunk):
            place, sign = mark.start(), mark.group()
            if place < skip_to:
                continue
            if sign == b"\\":
                self._escaped = self._in_string and place + 1 == len(chunk)
                skip_to = place + 2 if self._in_string else place + 1
            elif sign == b'"':
                self._in_string = not self._in_string and self._depth > 0
            elif self._in_string:
                continue
            elif sign == b"{":
                if self._depth == 0:
                    start = place
                self._depth += 1
            elif self._depth:
                self._depth -= 1
                if self._depth == 0:
                    yield b"".join((*self._held, chunk[start : place + 1]))
                    self._held.clear()
        if self._depth:
            self._held.append(chunk[start:])

    def close(self) -> bytes:
        """An object that was cut off."""
        held = b"".join(self._held)
        self._held.clear()
        self._depth, self._in_string = 0, False
        return held
