"""Frames: numbered updates of a run, snapshots of it, and the position of a viewer among them.

A frame is a small JSON object. Its number `n` counts up within its run: a viewer that has frame 41 knows that 42 is
next, that 40 is a repetition, and that 44 means that frames were lost. A `RunSnapshot` stands for all frames up
to its `n`, so a viewer can start from it at any time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from history.answers.assembly import NO_ARGUMENTS
from history.answers.events import Event, ReasoningPiece, TextPiece, ToolCallPiece
from history.entries import ModelOutput, Part, Reasoning, Text, ToolRequest

Piece = list[str]  # kind, part, text; of a tool call also its id and the name of the tool
Frame = dict[str, Any]
StoredEntry = tuple[int, list[Piece]]  # its number, and the pieces of an answer

MAX_AHEAD = 1_000


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment, including frame `n`. None: the number is not known, and no answer is being written.

    The answer of `exchange` is being written after the entry `after`; without an `exchange`, `after` is the last entry
    of the run. `entries` are those after an entry that the reader named, `ended` is the frame of the run's end. Where
    the run changed whenever it was read, it is not consistent: only the entries are certain.
    """

    n: int | None = None
    after: int = 0
    exchange: str = ""
    pieces: Sequence[Piece] = ()
    model: str = ""
    role: str = ""
    retry: Frame | None = None
    entries: Sequence[StoredEntry] = ()
    ended: Frame | None = None
    is_consistent: bool = True


class FrameCursor:
    """What a viewer has seen of a run: frame `n` is the last one; `ahead` are frames after a gap."""

    def __init__(self, run: UUID, *, n: int = 0) -> None:
        self.run, self.n = run, n
        self.ahead: dict[int, Frame] = {}

    @property
    def has_gap(self) -> bool:
        return bool(self.ahead)

    def receive(self, frame: Frame) -> list[Frame]:
        """The frames that can be shown now: none if this one is a repetition or comes after a gap."""
        if frame["n"] > self.n and len(self.ahead) < MAX_AHEAD:
            self.ahead[frame["n"]] = frame
        return list(self.pop_next())

    def skip_to(self, n: int) -> None:
        """Frames up to `n` are not needed any more."""
        self.n = max(self.n, n)
        self.ahead = {number: frame for number, frame in self.ahead.items() if number > self.n}

    def pop_next(self) -> Iterator[Frame]:
        while (frame := self.ahead.pop(self.n + 1, None)) is not None:
            self.n += 1
            yield frame


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


def pieces_of(output: ModelOutput | None, names: Sequence[str] = ()) -> list[Piece]:
    """A partial answer as pieces, one for each part. Parts without a name are named by their position."""
    known = dict(enumerate(names))
    parts = output.parts if output else ()
    pieces = (_whole_part(part, known.get(place, f"part-{place}")) for place, part in enumerate(parts))
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
