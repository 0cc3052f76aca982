"""Frame cursors of sockets: what a page and a program have seen of a run.

Frames can get lost: the session was opened in the middle of an answer, or the run is in another process and Redis was
away. A frame after a gap waits until a snapshot of the run (`relay.live.snapshots`) fills the gap.

A program gets every piece of an answer exactly once and in order. What was sent from a snapshot is recognised when its
frames arrive late:

* A partial answer says which `n` it includes. Frames up to that number are dropped.
* A stored entry has no `n`. Frames of an answer say which entry it follows (`after`). Those that follow an entry before
  the last sent one belong to an answer that is stored and sent, and are dropped.

A dropped frame is counted but not sent, so the next event has `since`: the last `n` that was sent.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID
from weakref import WeakValueDictionary

from relay.live.answer_html import AnswerCursor, Change
from relay.live.frames import Frame, FrameCursor, Piece, RunSnapshot

# Rendered answers by run, as long as a page shows them. All pages of a process use one event loop.
_answers: WeakValueDictionary[UUID, AnswerCursor] = WeakValueDictionary()


class PageCursor(FrameCursor):
    """What a page shows of a run: an answer, if one is being written."""

    answer: AnswerCursor | None = None

    @property
    def element(self) -> str:
        """The id of the live answer on the page."""
        return f"run-{self.run}" if self.answer is not None else ""

    def open_answer(self, frame: Frame) -> AnswerCursor:
        answer = _answers.get(self.run)
        if answer is None or answer.exchange != frame["exchange"]:
            answer = AnswerCursor(self.run, exchange=frame["exchange"], n=frame["n"], label=frame["model"])
        return answer

    async def resume_answer(self, snapshot: RunSnapshot) -> AnswerCursor:
        """The answer of a snapshot, with the frames that wait here."""
        answer = _answers.get(self.run)
        if answer is None or answer.exchange != snapshot.exchange or answer.n < (snapshot.n or 0):
            answer = await AnswerCursor.from_snapshot(snapshot, run=self.run)
        self.skip_to(answer.n)
        for frame in self.pop_next():
            await answer.apply(frame)
        return answer

    def show(self, answer: AnswerCursor) -> None:
        """The page is sent the whole answer; call it with the lock of the answer."""
        _answers[self.run] = answer
        self.answer = answer
        self.skip_to(answer.n)

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
