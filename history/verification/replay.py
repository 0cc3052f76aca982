"""Replay of the entries of one session: head, path and answered calls.

It follows the rules of `recorder` and `storage`, but shares no code with them: two tellings of the same story that must
agree. Only numbers and call ids are kept, about 20 bytes for an entry.

After a trim the place of the head before the first entry is not known; then the row's own word (`moved`) is taken until
the head stands on an entry that is still there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from history.entries import CONVERSATION, LEAVES, MESSAGES, HeadMoved, ModelOutput, ToolResults

SPOKEN, ON_PATH, LEAF, PRESENT, RESULTS, MESSAGE = 1, 2, 4, 8, 16, 32


@dataclass
class ReplayedCall:
    """One request of an answer, and the result that belongs to it."""

    call_id: str
    answered_by: int | None = None
    answer_index: int | None = None


class EntryRow(Protocol):
    """The columns of a message that are replayed."""

    @property
    def seq(self) -> int: ...
    @property
    def parent_seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_internal(self) -> bool: ...
    @property
    def moved_head(self) -> bool: ...


@dataclass
class Replay:
    trimmed_through: int = 0
    head: int | None = 0  # None: somewhere in what was trimmed
    calls: dict[int, list[ReplayedCall]] = field(default_factory=dict)  # by the answer that asks
    results: dict[int, Sequence[str]] = field(default_factory=dict)  # the call ids that an entry of results answers
    _parents: array[int] = field(default_factory=lambda: array("q"))
    _outputs: array[int] = field(default_factory=lambda: array("q"))  # whose calls stand open after each entry
    _flags: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.head = None if self.trimmed_through else 0

    def add(self, row: EntryRow, *, asks: Sequence[str], answers: Sequence[str]) -> bool:
        """The next entry; returns whether it moved the head."""
        seq, parent, kind = row.seq, row.parent_seq, row.kind
        self._make_room(seq, parent, kind, is_message=kind in MESSAGES and not row.is_internal)
        if kind == HeadMoved.kind:
            self._move(parent)
            return True
        if kind in LEAVES:
            return False
        moves = row.moved_head if self.head is None and parent <= self.trimmed_through else parent == self.head
        if moves:
            self.head = seq
            self._flags[self._place(seq)] |= ON_PATH
        self._pair(seq, parent, kind, asks, answers)
        return moves

    def has(self, seq: int) -> bool:
        """Whether this entry is there and can be followed."""
        place = self._place(seq)
        return 0 <= place < len(self._flags) and self._flags[place] & (PRESENT | LEAF) == PRESENT

    def is_on_path(self, seq: int) -> bool:
        return bool(self._flags[self._place(seq)] & ON_PATH)

    def messages_on_path(self) -> int:
        """What people see as messages, on the path to the head."""
        return sum(flags & (MESSAGE | ON_PATH) == MESSAGE | ON_PATH for flags in self._flags)

    def hangs_on_anchor(self) -> bool:
        """Whether the path to the head begins after something that was trimmed."""
        seq = self.head or 0
        while self.has(seq):
            seq = self.parent_of(seq)
        return 0 < seq <= self.trimmed_through

    def parent_of(self, seq: int) -> int:
        return self._parents[self._place(seq)]

    def output_of(self, seq: int) -> int:
        """The answer whose calls stand open after entry `seq`; 0: none."""
        return self._outputs[self._place(seq)] if self.has(seq) else 0

    def _place(self, seq: int) -> int:
        return seq - self.trimmed_through - 1

    def _make_room(self, seq: int, parent: int, kind: str, *, is_message: bool) -> None:
        missing = self._place(seq) - len(self._flags)
        for numbers in (self._parents, self._outputs):
            numbers.extend([0] * missing)
        self._flags.extend(bytes(missing))
        self._parents.append(parent)
        self._outputs.append(0)
        spoken = (SPOKEN if kind in CONVERSATION else 0) | (MESSAGE if is_message else 0)
        leaf = LEAF if kind in LEAVES else 0
        self._flags.append(PRESENT | spoken | leaf | (RESULTS if kind == ToolResults.kind else 0))

    def _pair(self, seq: int, parent: int, kind: str, asks: Sequence[str], answers: Sequence[str]) -> None:
        open_before = self.output_of(parent)
        if kind == ModelOutput.kind:
            self._outputs[self._place(seq)] = seq
            if asks:
                self.calls[seq] = [ReplayedCall(call_id) for call_id in asks]
        elif kind == ToolResults.kind:
            self.results[seq] = answers
            # A call on the path waits for results on the path.
            if open_before in self.calls and (self.is_on_path(seq) or not self.is_on_path(open_before)):
                _answer(self.calls[open_before], answers, seq)
        elif kind not in CONVERSATION:
            self._outputs[self._place(seq)] = open_before

    def _move(self, to: int) -> None:
        beside, joins = [], to
        while self.has(joins) and not self.is_on_path(joins):
            beside.append(joins)
            joins = self.parent_of(joins)
        joins = joins if self.has(joins) else 0
        for seq in list(self._path_down_to(joins)):
            self._flags[self._place(seq)] &= ~ON_PATH
        for seq in beside:
            self._flags[self._place(seq)] |= ON_PATH
        self.head = to
        self._project(since=joins)

    def _path_down_to(self, seq: int) -> Iterator[int]:
        step = self.head or 0
        while step > seq and self.has(step):
            yield step
            step = self.parent_of(step)

    def _project(self, *, since: int) -> None:
        """Calls on the new part of the path show the results on it, or stand open."""
        spoken = []
        for seq in self._path_down_to(-1):
            if self._flags[self._place(seq)] & SPOKEN:
                spoken.append(seq)
                if seq <= since:
                    break
        follower = dict(zip(spoken[1:], spoken, strict=False))
        for seq in spoken:
            if seq in self.calls:
                self._answer_on_path(self.calls[seq], follower.get(seq, 0))

    def _answer_on_path(self, calls: Sequence[ReplayedCall], after: int) -> None:
        answer = after if after in self.results else None
        stale = [call for call in calls if call.answered_by != answer]
        for call in stale:
            call.answered_by = call.answer_index = None
        if answer is not None:
            _answer(stale, self.results[answer], answer)


def _answer(calls: Sequence[ReplayedCall], answers: Sequence[str], seq: int) -> None:
    """Each call without an outcome gets the first result with its id."""
    waiting = list(enumerate(answers))
    for call in calls:
        match = next((pair for pair in waiting if pair[1] == call.call_id), None)
        if match is not None and call.answered_by is None:
            waiting.remove(match)
            call.answered_by, call.answer_index = seq, match[0]
