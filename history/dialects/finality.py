"""Detection of the final event of a stream in raw bytes, for replies that are passed on unread.

A vendor's final event ends the answer, whatever the connection does afterwards: Codex hangs up as soon as it has read
`response.completed`, and some servers never close. Most pieces of a stream are only searched for a few literal marks;
only an event that holds one of them is parsed. The dialect decides what a parsed event means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from history.dialects.json_access import parsed
from history.dialects.sse import ServerSentEvent, SSEDecoder


class Finality(IntEnum):
    """What the events so far say about the answer: more is to come, it is complete, or nothing at all can follow."""

    OPEN = 0
    COMPLETE = 1  # counts may follow
    OVER = 2


# What an event with that name and that object says; None where it says nothing about the end.
Judge = Callable[[str, Mapping[str, Any]], Finality | None]

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
# Longer than every mark and every event end: enough of the last piece to find one that was split.
_OVERLAP = 32
# Longer events are judged by their name, their type or their mark: to parse them would hold up other calls.
_MOST_HELD = 64 * 1024
_MOST_PARSED = _MOST_HELD // 4  # in characters, which have up to four bytes
_LEADING_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"([^"\\]*)"')


class FinalEventScanner:
    """Fed the bytes of a server-sent event stream in pieces of any size; `state` is what they said so far."""

    __slots__ = ("_held", "_is_marked", "_judge", "_marks", "_size", "_tail", "state")

    def __init__(self, marks: tuple[bytes, ...], judge: Judge) -> None:
        self._marks, self._judge = marks, judge
        self._held: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._is_marked = False
        self.state = Finality.OPEN

    def feed(self, chunk: bytes) -> Finality:
        overlap, seen = len(self._tail), self._tail + chunk
        self._tail = seen[-_OVERLAP:]
        if not self._is_marked:
            self._is_marked = self._has_mark(seen)
        end = len(seen) if seen.endswith(_EVENT_ENDS) else _last_event_end(seen)
        if end <= overlap:  # the event goes on
            self._hold(chunk)
            return self.state
        if self._is_marked:
            self._read(b"".join((*self._held, chunk[: end - overlap])))
        rest = chunk[end - overlap :]
        self._held, self._size = [], 0
        self._is_marked = bool(rest) and self._has_mark(rest)
        self._hold(rest)
        return self.state

    def close(self) -> Finality:
        """The stream has ended: an event without its empty line counts, as it does for clients."""
        if self._is_marked and self._held:
            self._read(b"".join(self._held))
        return self.state

    def _has_mark(self, said: bytes) -> bool:
        return any(mark in said for mark in self._marks)

    def _hold(self, chunk: bytes) -> None:
        """Of a very long event its beginning is enough."""
        if chunk and self._size <= _MOST_HELD:
            self._held.append(chunk[: _MOST_HELD + 1])
            self._size += len(chunk)

    def _read(self, said: bytes) -> None:
        decoder = SSEDecoder()
        for event in (*decoder.feed(said), *decoder.close()):
            verdict = self._verdict(event)
            if verdict is not None:
                self.state = verdict

    def _verdict(self, event: ServerSentEvent) -> Finality | None:
        text = event.data.strip()
        if text.startswith("[DONE]"):
            return Finality.OVER
        if len(text) > _MOST_PARSED:
            return self._verdict_of_long(event.name, text)
        try:
            data = parsed(text)
        except ValueError:
            return None
        return self._judge(event.name, data) if isinstance(data, Mapping) else None

    def _verdict_of_long(self, name: str, text: str) -> Finality | None:
        if found := _LEADING_TYPE.match(text):
            name = found[1]
        return self._judge(name, {}) if name else Finality.COMPLETE


def _last_event_end(said: bytes) -> int:
    """Where the last whole event ends; 0 where none does."""
    return max(place + len(end) if (place := said.rfind(end)) >= 0 else 0 for end in _EVENT_ENDS)
