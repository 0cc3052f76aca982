"""Surrogate pairs that a server split over two pieces of an answer.

Beyond U+FFFF a character is two surrogates in JSON. Alone, neither has a form in UTF-8: no database takes it and no
socket sends it. One that stays alone is let through at the end, as the vendor sent it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from history.answers.events import Event, ReasoningPiece, TextPiece

FIRST_HALVES = range(0xD800, 0xDC00)

Worded = TextPiece | ReasoningPiece


class Halves:
    def __init__(self) -> None:
        self._waiting: dict[tuple[str, type[Worded]], Worded] = {}

    def joined(self, event: Event) -> Event:
        """The same piece, with the half that waited for it and without one that it ends with."""
        if not isinstance(event, TextPiece | ReasoningPiece) or not event.text:
            return event
        if not self._waiting and ord(event.text[-1]) not in FIRST_HALVES:
            return event
        place = (event.part, type(event))
        before = self._waiting.pop(place, None)
        text = _paired(before.text + event.text) if before else event.text
        if ord(text[-1]) in FIRST_HALVES:
            self._waiting[place] = replace(event, text=text[-1])
            text = text[:-1]
        return replace(event, text=text) if text != event.text else event

    def rest(self) -> Iterator[Event]:
        yield from self._waiting.values()
        self._waiting = {}


def _paired(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
