"""Frames: numbered updates of a run, snapshots of it, and the position of a viewer among them.

A frame is a small JSON object. Its number `n` counts up within its run: a viewer that has frame 41 knows that 42 is
next, that 40 is a repetition, and that 44 means that frames were lost: the session was opened in the middle of an
answer, or the run is in another process and Redis was away. A frame after a gap waits until a `RunSnapshot`, which
stands for all frames up to its `n`, fills the gap.
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
        self.run, self.run_name, self.n = run, str(run), n
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


class ProgramCursor(FrameCursor):
    """What a program was sent of a run: `sent_n` is the last `n` that it got, `leaf` its last entry.

    `lengths` says how much of each part of the answer `exchange` was sent. A program gets every piece of an answer
    exactly once and in order. What was sent from a snapshot is recognised when its frames arrive late:

    * A partial answer says which `n` it includes. Frames up to that number are dropped.
    * A stored entry has no `n`. Frames of an answer say which entry it follows (`after`). Those that follow an entry
      before the last sent one belong to an answer that is stored and sent, and are dropped.

    A dropped frame is counted but not sent, so the next event has `since`: the last `n` that was sent.
    """

    def __init__(self, run: UUID, *, n: int = 0, leaf: int = 0) -> None:
        super().__init__(run, n=n)
        self.leaf, self.exchange, self.sent_n = leaf, "", 0
        self.lengths: dict[tuple[str, str], int] = {}

    def start_at(self, snapshot: RunSnapshot) -> list[Piece]:
        """Begin in the middle of a run: the pieces up to now. Frames after `n` follow as events."""
        self.n = self.sent_n = snapshot.n or 0
        self.leaf, self.exchange, self.lengths = snapshot.after, snapshot.exchange, {}
        return self._unsent_pieces(snapshot.pieces)

    def receive(self, frame: Frame) -> list[Frame]:
        return [event for one in super().receive(frame) for event in self._events_of(one)]

    def catch_up(self, snapshot: RunSnapshot) -> list[Frame]:
        """The events from what was sent to this snapshot, which has to be read after all frames in `ahead`."""
        events = [event for seq, pieces in snapshot.entries for event in self._entry_events(seq, pieces)]
        if snapshot.n is not None:
            events += self._answer_events(snapshot)
        elif self.ahead and snapshot.is_consistent:
            events += self._skip_gap()
        if snapshot.ended is not None and not any(event["kind"] == "ended" for event in events):
            events.append(snapshot.ended)
        return events

    def _entry_events(self, seq: int, pieces: list[Piece]) -> list[Frame]:
        """Events of a stored entry: the rest of the answer that was being sent, and that it is stored."""
        if seq <= self.leaf:
            return []
        unsent = self._unsent_pieces(self._with_sent_names(pieces))
        self._note({"kind": "stored", "leaf": seq})
        rest: list[Frame] = [{"kind": "pieces", "since": self.sent_n, "pieces": unsent}] if unsent else []
        return [*rest, {"kind": "stored", "leaf": seq}]

    def _answer_events(self, snapshot: RunSnapshot) -> list[Frame]:
        events: list[Frame] = []
        if snapshot.exchange and snapshot.exchange != self.exchange:
            fields = ("exchange", "after", "model", "role")
            opened = {"kind": "opened"} | {name: getattr(snapshot, name) for name in fields}
            self._note(opened)
            events += [opened] if snapshot.role else []
        pieces = self._unsent_pieces(snapshot.pieces) if snapshot.exchange else []
        self.skip_to(snapshot.n or 0)
        if pieces:
            events.append({"kind": "pieces", "n": self.n, "since": self.sent_n, "pieces": pieces})
            self.sent_n = self.n
        return [*events, *(event for frame in self.pop_next() for event in self._events_of(frame))]

    def _skip_gap(self) -> list[Frame]:
        """No answer is being written, so pieces in `ahead` are of answers that have ended: they are entries now."""
        waiting, self.ahead = [self.ahead[n] for n in sorted(self.ahead)], {}
        self.n = waiting[-1]["n"]
        return [event for one in waiting if one["kind"] not in ("opened", "pieces") for event in self._events_of(one)]

    def _events_of(self, frame: Frame) -> Iterator[Frame]:
        if self._is_sent(frame):
            return
        self._note(frame)
        since, self.sent_n = self.sent_n, frame["n"]
        yield frame if since == frame["n"] - 1 else {**frame, "since": since}

    def _is_sent(self, frame: Frame) -> bool:
        match frame["kind"]:
            case "opened":
                return bool(frame.get("after", self.leaf) < self.leaf or frame["exchange"] == self.exchange)
            case "pieces":
                return bool(frame.get("after", self.leaf) < self.leaf)
            case "stored":
                return bool(frame["leaf"] <= self.leaf)
            case "calling" | "result":
                return bool(frame["seq"] < self.leaf)
        return False

    def _note(self, frame: Frame) -> None:
        match frame["kind"]:
            case "opened":
                self.exchange, self.lengths = frame["exchange"], {}
            case "pieces":
                for kind, part, text, *_ in frame["pieces"]:
                    self.lengths[kind, part] = self.lengths.get((kind, part), 0) + len(text)
            case "stored":
                self.exchange, self.lengths, self.leaf = "", {}, frame["leaf"]

    def _with_sent_names(self, pieces: list[Piece]) -> list[Piece]:
        """Parts of an entry under the names by which they were sent. Parts of one kind have the same order in it."""
        names = {kind: iter([part for other, part in self.lengths if other == kind]) for kind, _ in self.lengths}
        return [[kind, next(names.get(kind, iter(())), part), *rest] for kind, part, *rest in pieces]

    def _unsent_pieces(self, pieces: Iterable[Piece]) -> list[Piece]:
        """By the length of each part: what was sent is always its beginning."""
        unsent = []
        for kind, part, text, *call in pieces:
            length = self.lengths.get((kind, part))
            if length is None or length < len(text):
                unsent.append([kind, part, text[length or 0 :], *call])
                self.lengths[kind, part] = len(text)
        return unsent


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
