"""What a program has been told of a run: each frame once and in order, whether it was heard or found in the record.

Frames come through the channel layer, numbered. Some may never come: the session was opened in the middle of an answer,
or the run lives in another process and there is no Redis. Then what was noted of the answer fills the gap (`since` says
which frame it follows), and whatever that includes is not told again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from history.entries import ModelOutput
from history.models import Exchange, Message, Session
from history.selectors import entries_of
from relay import runs
from relay.live import Frame, Piece, pieces_of
from relay.live_runs import SoFar
from relay.models import Run
from relay.running import open_exchange_of

MOST_AHEAD = 1_000


@dataclass(slots=True)
class Following:
    """`n` is the last frame that was told, `leaf` the last entry, `lengths` how much of each part of the answer."""

    run: UUID
    n: int = 0
    leaf: int = 0
    exchange: str = ""
    lengths: dict[tuple[str, str], int] = field(default_factory=dict)
    ahead: dict[int, Frame] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)

    @property
    def has_gap(self) -> bool:
        return bool(self.ahead)

    def take(self, frame: Frame) -> list[Frame]:
        """What can be told now: nothing of a repetition, nor of a frame before which something is missing."""
        self.heard_at = time.monotonic()
        if frame["n"] > self.n and len(self.ahead) < MOST_AHEAD:
            self.ahead[frame["n"]] = frame
        return list(self._in_order())

    def catch_up(self, so_far: SoFar) -> list[Frame]:
        """What the answer so far has, and we have not told; then the frames that waited for it."""
        if self.exchange != so_far.exchange:
            self.exchange, self.lengths = so_far.exchange, {}
        since, pieces = self.n, self._missing(so_far.output, so_far.names)
        if so_far.n > self.n or pieces:
            self.n = max(self.n, so_far.n)
            self.ahead = {n: frame for n, frame in self.ahead.items() if n > self.n}
            return [{"kind": "pieces", "n": self.n, "since": since, "pieces": pieces}, *self._in_order()]
        return []

    def go_past_the_gap(self) -> list[Frame]:
        """Everything that is stored was told and nothing is on its way: what is missing will not come any more."""
        self.n = min(self.ahead) - 1 if self.ahead else self.n
        return list(self._in_order())

    def stored(self, seq: int, output: ModelOutput | None) -> list[Frame]:
        """An entry of this run that we found: the rest of an answer that we were telling, and that it is stored."""
        pieces = self._missing(output, self._names_in(output)) if output else []
        self._note({"kind": "stored", "leaf": seq})
        rest: list[Frame] = [{"kind": "pieces", "since": self.n, "pieces": pieces}] if pieces else []
        return [*rest, {"kind": "stored", "leaf": seq}]

    def opened(self, exchange: Exchange) -> list[Frame]:
        if self.exchange == str(exchange.pk):
            return []
        frame = {"kind": "opened", "exchange": str(exchange.pk), "after": exchange.after}
        self._note(frame)
        model = f"{exchange.provider}/{exchange.model}"
        return [{**frame, "model": model, "role": exchange.inputs.get("role", "executor")}]

    def _in_order(self) -> Iterator[Frame]:
        while (frame := self.ahead.pop(self.n + 1, None)) is not None:
            self.n += 1
            self._note(frame)
            yield frame

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
        """By which names we told the parts of an answer: those of one kind are in the same order here and there."""
        told = {kind: iter([part for other, part in self.lengths if other == kind]) for kind, _ in self.lengths}
        places = [f"part-{place}" for place in range(len(output.parts))]
        kinds = {place: kind for kind, place, *_ in pieces_of(output, places)}
        return [next(told.get(kinds.get(place, ""), iter(())), place) for place in places]

    def _missing(self, output: ModelOutput | None, names: Sequence[str]) -> list[Piece]:
        """By the length of each part: what was told is always a beginning of it."""
        missing = []
        for kind, part, text, *call in pieces_of(output, names) if output else ():
            told = self.lengths.get((kind, part))
            if told is None or told < len(text):
                missing.append([kind, part, text[told or 0 :], *call])
                self.lengths[kind, part] = len(text)
        return missing


def found(following: Following) -> list[Frame]:
    """What the record and the notes have of a run of another process and the program was not told."""
    run = Run.objects.filter(pk=following.run).first()
    if run is None:
        return []
    frames: list[Frame] = []
    for seq, output in _stored_since(run, following.leaf or run.origin):
        frames += following.stored(seq, output)
    exchange = open_exchange_of(run) if run.ended_at is None else None
    if exchange is not None:
        frames += following.opened(exchange) + following.catch_up(runs.noted(exchange))
    else:
        frames += following.go_past_the_gap()
    if run.ended_at is not None and not any(frame["kind"] == "ended" for frame in frames):
        frames.append({"kind": "ended", "outcome": run.outcome, "error": run.error, "leaf": run.leaf})
    return frames


def _stored_since(run: Run, leaf: int) -> list[tuple[int, ModelOutput | None]]:
    """The entries of the run after `leaf`, oldest first; of an answer also what it says."""
    way: list[Message] = []
    session, place = Session(pk=run.session), run.leaf
    while place > leaf and (message := Message.objects.filter(session=session, seq=place).first()) is not None:
        way.append(message)
        place = message.parent_seq
    entries = entries_of(way)
    told = [(message.seq, entry) for message, entry in zip(way, entries, strict=True)]
    return [(seq, entry if isinstance(entry, ModelOutput) else None) for seq, entry in reversed(told)]
