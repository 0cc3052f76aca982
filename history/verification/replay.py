"""Replay of the entries of one session: head, path, totals and answered calls, by the functions of the record.

After a trim the place of the head before the first entry is unknown. Then `moved_head` of the rows decides, until the
head is on an entry that is still there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from history.entries import CONVERSATION, NEVER_PARENTS, Entry, HeadMoved, ToolResults
from history.models import Message, Session
from history.record import fingerprints, projections
from history.record.row_builder import ParentState, count_entry, next_parent_state, set_head


@dataclass(slots=True)
class ReplayedCall:
    call_id: str
    answered_by: int | None = None
    answer_index: int | None = None


@dataclass(slots=True)
class ReplayedEntry:
    """An entry that others can follow."""

    parent: int
    kind: str
    is_message: bool
    parent_state: ParentState
    on_path: bool


class Replay:
    def __init__(self, session: Session) -> None:
        self.trimmed_through = session.trimmed_through
        self.head: int | None = None if self.trimmed_through else 0  # None: somewhere in what was trimmed
        self.steps: dict[int, ReplayedEntry] = {}
        self.calls: dict[int, list[ReplayedCall]] = {}  # by the answer that asks
        self.results: dict[int, Sequence[str]] = {}  # the call ids that an entry of results answers
        self.marks: dict[int, bool] = {}  # `on_path` as the rows have it
        self._session = Session(trimmed_through=self.trimmed_through)

    def add(self, row: Message, entry: Entry | None) -> bool:
        """Add the next entry, without its text if that is dropped or unreadable. Returns whether it moves the head."""
        count_entry(self._session, row, entry)
        self.marks[row.seq] = row.on_path
        if row.seq <= self.trimmed_through:
            return row.moved_head
        if row.kind == HeadMoved.kind:
            self._move_head(row.parent_seq)
            return True
        if row.kind in NEVER_PARENTS:
            return False
        seq, parent, before = row.seq, row.parent_seq, self.parent_state_of(row.parent_seq)
        moves = row.moved_head if self.head is None and parent <= self.trimmed_through else parent == self.head
        if moves:
            self.head = seq
        calls = projections.calls_in(entry) if entry is not None else []
        parent_state = next_parent_state(before, row, calls=calls)
        self.steps[seq] = ReplayedEntry(parent, row.kind, row.is_message, parent_state, moves)
        if calls:
            self.calls[seq] = [ReplayedCall(call_id) for call_id, _ in calls]
        if row.kind == ToolResults.kind:
            self.results[seq] = [result.call_id for result in entry.results] if entry else []
            # A call on the path waits for results on the path.
            if before.output in self.calls and (moves or not self.steps[before.output].on_path):
                self._answer(self.calls[before.output], seq)
        return moves

    def totals(self) -> Session:
        """The columns of the session that follow from its entries: head and counters."""
        session, head = self._session, self.head or 0
        set_head(session, parent_state=self.parent_state_of(head), seq=head)
        session.message_count = sum(step.is_message and step.on_path for step in self.steps.values())
        return session

    def parent_state_of(self, seq: int) -> ParentState:
        return self.steps[seq].parent_state if seq in self.steps else ParentState(fingerprints.START)

    def wrong_marks(self) -> dict[int, bool]:
        """The entries that are wrong about whether they are on the path to the head, with the right value."""
        first = self.head or 0
        while first in self.steps:
            first = self.steps[first].parent
        is_anchored = 0 < first <= self.trimmed_through  # the path begins after something that was trimmed
        on_path = {seq for seq, step in self.steps.items() if step.on_path}
        right = {seq: seq in on_path if seq > self.trimmed_through else is_anchored for seq in self.marks}
        return {seq: mark for seq, mark in right.items() if mark != self.marks[seq]}

    def _move_head(self, to: int) -> None:
        beside, joins = [], to
        while joins in self.steps and not self.steps[joins].on_path:
            beside.append(joins)
            joins = self.steps[joins].parent
        joins = joins if joins in self.steps else 0
        for seq in list(self._path_back_to(joins)):
            self.steps[seq].on_path = False
        for seq in beside:
            self.steps[seq].on_path = True
        self.head = to
        self._project_outcomes(since=joins)

    def _path_back_to(self, seq: int) -> Iterator[int]:
        """The path from the head back to entry `seq`, without that."""
        step = self.head or 0
        while step > seq and step in self.steps:
            yield step
            step = self.steps[step].parent

    def _project_outcomes(self, *, since: int) -> None:
        """Calls on the new part of the path get the results on it, or are open."""
        follower = 0
        for seq in self._path_back_to(-1):
            if self.steps[seq].kind not in CONVERSATION:
                continue
            answer = follower if follower in self.results else None
            stale = [call for call in self.calls.get(seq, ()) if call.answered_by != answer]
            for call in stale:
                call.answered_by = call.answer_index = None
            if answer is not None:
                self._answer(stale, answer)
            if seq <= since:
                break
            follower = seq

    def _answer(self, calls: Sequence[ReplayedCall], seq: int) -> None:
        unanswered = [call for call in calls if call.answered_by is None]
        paired = projections.pair_results([call.call_id for call in unanswered], self.results[seq])
        for call, index in zip(unanswered, paired, strict=True):
            if index is not None:
                call.answered_by, call.answer_index = seq, index
