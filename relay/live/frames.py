"""Frames (numbered updates of a run) and snapshots of a run.

A frame is a small JSON object. Its number `n` counts up within its run: a viewer that has frame 41 knows that 42 is
next, that 40 is a repetition, and that 44 means that frames were lost. A snapshot says which `n` it includes, so a
viewer can start from it at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from history.answers.assembly import NO_ARGUMENTS
from history.answers.events import Event, ReasoningPiece, TextPiece, ToolCallPiece
from history.entries import ModelOutput, Part, Reasoning, Text, ToolRequest

Piece = list[str]  # kind, part, text; of a tool call also its id and the name of the tool
Frame = dict[str, Any]
StoredEntry = tuple[int, ModelOutput | None]


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt to call a provider: the kind of error that caused it, and when it begins (UNIX time)."""

    kind: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """A run at one moment, including frame `n`. None: the number is not known, and no answer is being written.

    The answer of `exchange` is being written after the entry `after`; without an `exchange`, `after` is the last entry
    of the run. `entries` are those after an entry that the reader named, `ended` is the frame of the run's end.
    """

    n: int | None = None
    after: int = 0
    exchange: str = ""
    output: ModelOutput | None = None
    names: tuple[str, ...] = ()
    model: str = ""
    retry: Retry | None = None
    entries: Sequence[StoredEntry] = ()
    opened: Frame | None = None
    ended: Frame | None = None
    # False: the run kept changing while it was read, so only the entries are certain.
    is_consistent: bool = True

    @property
    def pieces(self) -> list[Piece]:
        return pieces_of(self.output, self.names) if self.output else []


def piece_of(event: Event) -> Piece | None:
    """The part of an event that viewers are sent, if any."""
    match event:
        case TextPiece() if event.text:
            return ["text", event.part, event.text]
        case ReasoningPiece():
            return ["reasoning", event.part, event.text]
        case ToolCallPiece():
            return ["call", event.part, event.arguments, event.call_id, event.name]
    return None


def merge_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Join consecutive pieces of the same part."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last[1] == piece[1] and last[0] == piece[0]:
            last[2] += piece[2]
            if len(last) > 3:
                last[3:] = [old or new for old, new in zip(last[3:], piece[3:], strict=True)]
        else:
            joined.append(list(piece))
    return joined


def pieces_of(output: ModelOutput, names: Sequence[str]) -> list[Piece]:
    """A partial answer as pieces, one for each part. Parts without a name are named by their position."""
    known = dict(enumerate(names))
    pieces = (_whole_part(part, known.get(place, f"part-{place}")) for place, part in enumerate(output.parts))
    return [piece for piece in pieces if piece]


def _whole_part(part: Part, name: str) -> Piece | None:
    match part:
        case Text():
            return ["text", name, part.text]
        case Reasoning():
            return ["reasoning", name, part.text]
        case ToolRequest():
            # A call whose arguments have not begun is stored with an empty object.
            return ["call", name, part.arguments.removeprefix(NO_ARGUMENTS), part.call_id, part.name]
    return None
