"""Cursor of a program's socket in a run: every piece of the answer is delivered exactly once and in order.

Frames of a run are numbered (`n`). They can get lost: the session was opened in the middle of an answer, or the run is
in another process and Redis was away. The database fills the gap: entries that are stored, and the noted part of the
answer that is being written. What was delivered from there is recognised when its frames arrive late:

* The noted part of an answer says which `n` it includes. Frames up to that number are dropped.
* A stored entry has no `n`. Frames of an answer say which entry it follows (`after`). Those that follow an entry before
  the last delivered one belong to an answer that is stored and delivered, and are dropped.

A dropped frame is counted but not delivered, so the next event carries `since`: the last `n` that was delivered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from history.entries import ModelOutput
from history.models import Exchange, Message, Session
from history.record.selectors import entries_of
from relay.live import runs
from relay.live.frames import Frame, Piece, pieces_of
from relay.live.run_task import PartialAnswer
from relay.live.running import open_exchange_of
from relay.models import Run

MOST_AHEAD = 1_000
# How often a run is read again that changes while it is read.
MOST_READS = 5

StoredEntry = tuple[int, ModelOutput | None]


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment: its entries after a given one, the answer that is being written, and its end."""

    entries: Sequence[StoredEntry] = ()
    so_far: PartialAnswer | None = None
    opened: Frame | None = None
    ended: Frame | None = None
    # False: it kept changing while it was read, so that only the entries are certain.
    is_settled: bool = True


@dataclass(slots=True)
class Following:
    """`n` is the last frame that is accounted for, `told` the last `n` that the program got, `leaf` its last entry.

    `lengths` says how much of each part of the answer `exchange` was delivered; `ahead` are frames behind a gap.
    """

    run: UUID
    n: int = 0
    leaf: int = 0
    exchange: str = ""
    told: int = 0
    lengths: dict[tuple[str, str], int] = field(default_factory=dict)
    ahead: dict[int, Frame] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)

    @property
    def has_gap(self) -> bool:
        return bool(self.ahead)

    def start_at(self, so_far: PartialAnswer) -> list[Piece]:
        """Begin in the middle of a run: the pieces so far. Frames after `n` follow as events."""
        self.n = self.told = so_far.n
        self.leaf, self.exchange, self.lengths = so_far.after, so_far.exchange, {}
        return self._missing(so_far.output, so_far.names)

    def take(self, frame: Frame) -> list[Frame]:
        """The events that a frame makes possible: none if it is a repetition or comes after a gap."""
        self.heard_at = time.monotonic()
        if frame["n"] > self.n and len(self.ahead) < MOST_AHEAD:
            self.ahead[frame["n"]] = frame
        return list(self._in_order())

    def catch_up(self, state: RunState) -> list[Frame]:
        """The events that lead from what was delivered to this state. It has to be read after all frames in `ahead`."""
        frames = [frame for seq, output in state.entries for frame in self._stored(seq, output)]
        if state.so_far is not None:
            frames += self._answer_so_far(state.so_far, state.opened)
        elif self.ahead and state.is_settled:
            frames += self._skip_gap()
        if state.ended is not None and not any(frame["kind"] == "ended" for frame in frames):
            frames.append(state.ended)
        return frames

    def _stored(self, seq: int, output: ModelOutput | None) -> list[Frame]:
        """An entry found in the record: the rest of the answer that was being delivered, and that it is stored."""
        if seq <= self.leaf:
            return []
        pieces = self._missing(output, self._names_in(output)) if output else []
        self._note({"kind": "stored", "leaf": seq})
        rest: list[Frame] = [{"kind": "pieces", "since": self.told, "pieces": pieces}] if pieces else []
        return [*rest, {"kind": "stored", "leaf": seq}]

    def _answer_so_far(self, so_far: PartialAnswer, opened: Frame | None) -> list[Frame]:
        frames: list[Frame] = []
        if so_far.exchange and so_far.exchange != self.exchange:
            self._note({"kind": "opened", "exchange": so_far.exchange})
            frames += [opened] if opened is not None else []
        pieces = self._missing(so_far.output, so_far.names) if so_far.exchange else []
        self.n = max(self.n, so_far.n)
        self.ahead = {n: frame for n, frame in self.ahead.items() if n > self.n}
        if pieces:
            frames.append({"kind": "pieces", "n": self.n, "since": self.told, "pieces": pieces})
            self.told = self.n
        return [*frames, *self._in_order()]

    def _skip_gap(self) -> list[Frame]:
        """No answer is being written, so pieces in `ahead` are of answers that have ended: they are in the record."""
        waiting, self.ahead = [self.ahead[n] for n in sorted(self.ahead)], {}
        self.n = waiting[-1]["n"]
        return [told for one in waiting if one["kind"] not in ("opened", "pieces") for told in self._deliver(one)]

    def _in_order(self) -> Iterator[Frame]:
        while (frame := self.ahead.pop(self.n + 1, None)) is not None:
            self.n += 1
            yield from self._deliver(frame)

    def _deliver(self, frame: Frame) -> Iterator[Frame]:
        if self._is_delivered(frame):
            return
        self._note(frame)
        since, self.told = self.told, frame["n"]
        yield frame if since == frame["n"] - 1 else {**frame, "since": since}

    def _is_delivered(self, frame: Frame) -> bool:
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

    def _names_in(self, output: ModelOutput) -> list[str]:
        """The names by which parts of an answer were delivered: those of one kind have the same order in the entry."""
        told = {kind: iter([part for other, part in self.lengths if other == kind]) for kind, _ in self.lengths}
        places = [f"part-{place}" for place in range(len(output.parts))]
        kinds = {place: kind for kind, place, *_ in pieces_of(output, places)}
        return [next(told.get(kinds.get(place, ""), iter(())), place) for place in places]

    def _missing(self, output: ModelOutput | None, names: Sequence[str]) -> list[Piece]:
        """By the length of each part: what was delivered is always a beginning of it."""
        missing = []
        for kind, part, text, *call in pieces_of(output, names) if output else ():
            told = self.lengths.get((kind, part))
            if told is None or told < len(text):
                missing.append([kind, part, text[told or 0 :], *call])
                self.lengths[kind, part] = len(text)
        return missing


def read_state(run_id: UUID, leaf: int, here: PartialAnswer | None = None) -> RunState:
    """A run as the database has it, with its entries after `leaf`. `here`: its answer, where it is in this process."""
    run, exchange, is_settled = _read(run_id)
    if run is None:
        return RunState()
    entries = _stored_since(run, leaf, here.after if here else run.leaf)
    if here is not None or not is_settled:
        return RunState(entries, here, is_settled=is_settled)
    return RunState(entries, runs.noted(exchange) if exchange else None, _opened(exchange), _ended(run))


def read_start(run_id: UUID) -> PartialAnswer | None:
    """Where a program begins to follow a run of another process. None: it has ended."""
    run, exchange, _ = _read(run_id)
    if run is None or run.ended_at is not None:
        return None
    return runs.noted(exchange) if exchange else PartialAnswer("", 0, None, after=run.leaf)


def _read(run_id: UUID) -> tuple[Run | None, Exchange | None, bool]:
    """A run and the answer that it waits for. They belong together if nothing was stored between the two reads."""
    for _ in range(MOST_READS):
        run = Run.objects.filter(pk=run_id).first()
        if run is None or run.ended_at is not None:
            return run, None, True
        exchange = open_exchange_of(run)
        if Run.objects.filter(pk=run_id, leaf=run.leaf, ended_at=None).exists():
            return run, exchange, True
    return run, None, False


def _opened(exchange: Exchange | None) -> Frame | None:
    if exchange is None:
        return None
    fields: dict[str, Any] = {"exchange": str(exchange.pk), "after": exchange.after}
    fields["model"] = f"{exchange.provider}/{exchange.model}"
    return {"kind": "opened", **fields, "role": exchange.inputs.get("role", "executor")}


def _ended(run: Run) -> Frame | None:
    if run.ended_at is None:
        return None
    return {"kind": "ended", "outcome": run.outcome, "error": run.error, "leaf": run.leaf}


def _stored_since(run: Run, leaf: int, last: int) -> list[StoredEntry]:
    """The entries of the run after `leaf` up to `last`, oldest first; of an answer also what it says."""
    path: list[Message] = []
    session, place = Session(pk=run.session), last
    while place > (leaf or run.origin) and (message := Message.objects.at(session, place).first()):
        path.append(message)
        place = message.parent_seq
    told = [(message.seq, entry) for message, entry in zip(path, entries_of(path), strict=True)]
    return [(seq, entry if isinstance(entry, ModelOutput) else None) for seq, entry in reversed(told)]
