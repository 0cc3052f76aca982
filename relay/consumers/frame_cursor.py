"""Frame cursors: the last frame of a run that a socket has sent to its viewer.

Frames can get lost: the session was opened in the middle of an answer, or the run is in another process and Redis was
away. A frame after a gap waits until a snapshot of the run (`relay.live.snapshots`) fills the gap.

A program gets every piece of an answer exactly once and in order. What was sent from a snapshot is recognised when its
frames arrive late:

* A partial answer says which `n` it includes. Frames up to that number are dropped.
* A stored entry has no `n`. Frames of an answer say which entry it follows (`after`). Those that follow an entry before
  the last sent one belong to an answer that is stored and sent, and are dropped.

A dropped frame is counted but not sent, so the next event has `since`: the last `n` that was sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import UUID
from weakref import WeakValueDictionary

from history.entries import ModelOutput
from relay.live.frames import Frame, Piece, RunSnapshot, pieces_of
from relay.live.live_answer import Change, LiveAnswer

MAX_AHEAD = 1_000

# Live answers by run, as long as a page shows them. All pages of a process use one event loop.
_live_answers: WeakValueDictionary[UUID, LiveAnswer] = WeakValueDictionary()


class FrameCursor:
    """The position of a viewer in a run: frame `n` is the last one; `ahead` are frames after a gap."""

    def __init__(self, run: UUID, *, n: int = 0) -> None:
        self.run, self.n = run, n
        self.ahead: dict[int, Frame] = {}
        self.received_at = time.monotonic()

    @property
    def has_gap(self) -> bool:
        return bool(self.ahead)

    def is_silent(self, seconds: float) -> bool:
        return time.monotonic() - self.received_at >= seconds

    def receive(self, frame: Frame) -> list[Frame]:
        """The frames that can be shown now: none if this one is a repetition or comes after a gap."""
        self.received_at = time.monotonic()
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


class PageCursor(FrameCursor):
    """What a page shows of a run: a live answer, if one is being written."""

    answer: LiveAnswer | None = None

    @property
    def element(self) -> str:
        """The id of the live answer on the page."""
        return f"run-{self.run}" if self.answer is not None else ""

    def open_answer(self, frame: Frame) -> LiveAnswer:
        """The answer that this frame begins."""
        answer = _live_answers.get(self.run)
        if answer is None or answer.exchange != frame["exchange"]:
            exchange, n, model = frame["exchange"], frame["n"], frame["model"]
            answer = LiveAnswer(run=str(self.run), exchange=exchange, n=n, label=model)
        return answer

    async def resume_answer(self, snapshot: RunSnapshot) -> LiveAnswer:
        """The answer of a snapshot, with the frames that wait here."""
        answer, n = _live_answers.get(self.run), snapshot.n or 0
        if answer is None or answer.exchange != snapshot.exchange or answer.n < n:
            answer = await LiveAnswer.from_snapshot(snapshot, run=str(self.run))
        self.skip_to(answer.n)
        for frame in self.pop_next():
            await answer.apply(frame)
        return answer

    def show(self, answer: LiveAnswer) -> None:
        """The page is sent the whole answer; call it with the lock of the answer."""
        _live_answers[self.run] = answer
        self.answer = answer
        self.skip_to(answer.n)
        self.received_at = time.monotonic()

    async def receive_changes(self, frame: Frame) -> list[Change] | None:
        """What the page has to change for this frame. Nothing for a repetition; None where something was missed."""
        answer = self.answer
        if answer is None or answer.exchange != frame["exchange"]:
            return None
        if frame["n"] <= self.n:
            return []
        changes = [await answer.apply(one) for one in self.receive(frame)]
        known = [change for change in changes if change is not None]
        return known if known and len(known) == len(changes) else None


class ProgramCursor(FrameCursor):
    """What a program was sent of a run: `sent_n` is the last `n` that it got, `leaf` its last entry.

    `lengths` says how much of each part of the answer `exchange` was sent.
    """

    def __init__(self, run: UUID, *, n: int = 0, leaf: int = 0) -> None:
        super().__init__(run, n=n)
        self.leaf = leaf
        self.exchange = ""
        self.sent_n = 0
        self.lengths: dict[tuple[str, str], int] = {}

    def start_at(self, snapshot: RunSnapshot) -> list[Piece]:
        """Begin in the middle of a run: the pieces up to now. Frames after `n` follow as events."""
        self.n = self.sent_n = snapshot.n or 0
        self.leaf, self.exchange, self.lengths = snapshot.after, snapshot.exchange, {}
        return self._unsent_pieces(snapshot.output, snapshot.names)

    def receive(self, frame: Frame) -> list[Frame]:
        return [event for one in super().receive(frame) for event in self._events_of(one)]

    def catch_up(self, snapshot: RunSnapshot) -> list[Frame]:
        """The events from what was sent to this snapshot, which has to be read after all frames in `ahead`."""
        events = [event for seq, output in snapshot.entries for event in self._entry_events(seq, output)]
        if snapshot.n is not None:
            events += self._answer_events(snapshot)
        elif self.ahead and snapshot.is_consistent:
            events += self._skip_gap()
        if snapshot.ended is not None and not any(event["kind"] == "ended" for event in events):
            events.append(snapshot.ended)
        return events

    def _entry_events(self, seq: int, output: ModelOutput | None) -> list[Frame]:
        """Events of a stored entry: the rest of the answer that was being sent, and that it is stored."""
        if seq <= self.leaf:
            return []
        pieces = self._unsent_pieces(output, self._sent_names(output)) if output else []
        self._note({"kind": "stored", "leaf": seq})
        rest: list[Frame] = [{"kind": "pieces", "since": self.sent_n, "pieces": pieces}] if pieces else []
        return [*rest, {"kind": "stored", "leaf": seq}]

    def _answer_events(self, snapshot: RunSnapshot) -> list[Frame]:
        events: list[Frame] = []
        if snapshot.exchange and snapshot.exchange != self.exchange:
            self._note({"kind": "opened", "exchange": snapshot.exchange})
            events += [snapshot.opened] if snapshot.opened is not None else []
        pieces = self._unsent_pieces(snapshot.output, snapshot.names) if snapshot.exchange else []
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

    def _sent_names(self, output: ModelOutput) -> list[str]:
        """The names by which parts of an answer were sent. Parts of one kind have the same order in the entry."""
        names = {kind: iter([part for other, part in self.lengths if other == kind]) for kind, _ in self.lengths}
        places = [f"part-{place}" for place in range(len(output.parts))]
        kinds = {place: kind for kind, place, *_ in pieces_of(output, places)}
        return [next(names.get(kinds.get(place, ""), iter(())), place) for place in places]

    def _unsent_pieces(self, output: ModelOutput | None, names: Sequence[str]) -> list[Piece]:
        """By the length of each part: what was sent is always its beginning."""
        unsent = []
        for kind, part, text, *call in pieces_of(output, names) if output else ():
            length = self.lengths.get((kind, part))
            if length is None or length < len(text):
                unsent.append([kind, part, text[length or 0 :], *call])
                self.lengths[kind, part] = len(text)
        return unsent
