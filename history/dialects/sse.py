"""Server-sent events and JSON documents from chunks of bytes, and detection of the final event.

Lines may end in LF, CR or CRLF; a chunk may end anywhere, even inside a character. Incomplete lines are collected in
pieces and joined once, so that a long line in many chunks takes linear time.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from history.dialects.json_access import as_bytes, parse_json
from history.entries import JsonObject

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
# They end no line of a stream, but clients that use Python's `splitlines` split there: Google's SDK does.
_SEPARATORS = {sign.encode(): f"\\u{ord(sign):04x}".encode() for sign in "\x85\u2028\u2029"}


class ServerSentEvent(NamedTuple):
    name: str
    data: str


def sse(data: object, *, name: str = "") -> bytes:
    written = data.encode() if isinstance(data, str) else as_bytes(data)
    if not isinstance(data, str):
        for separator, escaped in _SEPARATORS.items():
            written = written.replace(separator, escaped)
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + written + b"\n\n"


class SSEDecoder:
    """Decodes server-sent events. A last event without its empty line counts: not every server writes that."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._after_cr = False
        self._is_first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk, self._after_cr = chunk[1:], False
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        first, *rest = _LINE_END.split(chunk)
        self._held.append(first)
        for piece in rest:
            yield from self._read_line()
            self._held.append(piece)

    def close(self) -> Iterator[ServerSentEvent]:
        yield from self._read_line()
        yield from self._read_line()

    def _read_line(self) -> Iterator[ServerSentEvent]:
        """Read the line that is held; an empty one ends the event."""
        line = b"".join(self._held)
        self._held.clear()
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
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
    """Splits a JSON text into its outermost objects; an array around them is skipped."""

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
        """The rest: an object that was cut off."""
        return b"".join(self._held)


class Finality(IntEnum):
    """Whether an answer continues, is complete, or is over: nothing can follow."""

    OPEN = 0
    COMPLETE = 1  # counts may follow
    OVER = 2


# What an event with this name and object says about the end of the answer, if anything.
FinalityOf = Callable[[str, JsonObject], Finality | None]

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_OVERLAP = 32  # longer than every mark and event end: finds those that are split between two chunks
_MOST_HELD = 64 * 1024  # longer events are judged by their name, type or mark: parsing them would delay other calls
_MOST_PARSED = _MOST_HELD // 4  # in characters, which have up to four bytes
_LEADING_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"([^"\\]*)"')


class FinalEventScanner:
    """Finds the final event in the raw bytes of a relayed stream.

    A final event ends the answer even if the connection stays open or breaks: Codex hangs up after
    `response.completed`, and some servers never close. Chunks are only searched for a few marks of the dialect; only an
    event with a mark is parsed.
    """

    __slots__ = ("_finality_of", "_held", "_is_marked", "_marks", "_size", "_tail", "state")

    def __init__(self, marks: tuple[bytes, ...], finality_of: FinalityOf) -> None:
        self._marks, self._finality_of = marks, finality_of
        self._held: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._is_marked = False
        self.state = Finality.OPEN

    def feed(self, chunk: bytes) -> Finality:
        overlap, seen = len(self._tail), self._tail + chunk
        self._tail = seen[-_OVERLAP:]
        self._is_marked = self._is_marked or self._has_mark(seen)
        end = len(seen) if seen.endswith(_EVENT_ENDS) else _last_event_end(seen)
        if end <= overlap:  # the event continues
            self._hold(chunk)
            return self.state
        if self._is_marked:
            self._read(b"".join((*self._held, chunk[: end - overlap])))
        rest = chunk[end - overlap :]
        self._held, self._size = [], 0
        self._is_marked = self._has_mark(rest)
        self._hold(rest)
        return self.state

    def close(self) -> Finality:
        """At the end of the stream, an event without its empty line counts, as it does for clients."""
        if self._is_marked and self._held:
            self._read(b"".join(self._held))
        return self.state

    def _has_mark(self, text: bytes) -> bool:
        return any(mark in text for mark in self._marks)

    def _hold(self, chunk: bytes) -> None:
        """The beginning of a very long event is enough."""
        if chunk and self._size <= _MOST_HELD:
            self._held.append(chunk[: _MOST_HELD + 1])
            self._size += len(chunk)

    def _read(self, text: bytes) -> None:
        decoder = SSEDecoder()
        for event in (*decoder.feed(text), *decoder.close()):
            if (verdict := self._verdict(event)) is not None:
                self.state = verdict

    def _verdict(self, event: ServerSentEvent) -> Finality | None:
        text = event.data.strip()
        if text.startswith("[DONE]"):
            return Finality.OVER
        if len(text) > _MOST_PARSED:
            leading_type = _LEADING_TYPE.match(text)
            name = leading_type[1] if leading_type else event.name
            return self._finality_of(name, {}) if name else Finality.COMPLETE
        try:
            data = parse_json(text)
        except ValueError:
            return None
        return self._finality_of(event.name, data) if isinstance(data, Mapping) else None


def _last_event_end(text: bytes) -> int:
    """The end of the last whole event, or 0."""
    return max(place + len(end) if (place := text.rfind(end)) >= 0 else 0 for end in _EVENT_ENDS)
