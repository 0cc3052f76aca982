"""Where a history may be cut: pure arithmetic over the numbers of one session.

A *turn* begins with an input and takes everything that hangs below it until the next input, on whatever branch. A cut
after entry `n` is allowed when no turn has entries on both sides of it; so a call is never parted from its results, nor
an answer from its question, and a regenerated answer keeps the question that it shares with its sibling.

What still *holds* is left out of a cut: an instruction, the tools, a notebook or a plan that were set before it and
that an entry after it still lives under. Summaries are not: they go with what they stand for. A trim has one anchor for
all branches, so it waits while two of them that would hang on it live under different instructions.

A million entries take some tens of megabytes here; texts are never read.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from history.entries import CONVERSATION, LEAVES, ModelInput, NotebookSet, PlanSet, SystemInstructionSet, ToolsOffered

HELD_KINDS = (SystemInstructionSet.kind, ToolsOffered.kind, NotebookSet.kind, PlanSet.kind)

Held = tuple[int, int, int, int]  # the entries that set the instruction, tools, notebook and plan; 0: none
NOTHING: Held = (0, 0, 0, 0)


def int_array() -> array[int]:
    return array("q")


@dataclass
class Outline:
    """The shape of one session. Entries are added oldest first."""

    trimmed_through: int = 0
    head: int = 0
    anchor: Held = NOTHING  # what an earlier trim left standing
    seqs: array[int] = field(default_factory=int_array)
    parents: array[int] = field(default_factory=int_array)  # of leaves: 0, for nothing is read through them
    starts: array[int] = field(default_factory=int_array)  # where the turn of each entry begins
    counted: bytearray = field(default_factory=bytearray)  # 1: part of the conversation
    holding: list[Held] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # seq → index, of everything that can be a parent

    def add(self, seq: int, parent: int, kind: str) -> None:
        if seq <= self.trimmed_through:
            self.anchor = _with(self.anchor, kind, seq)
        above = self.places.get(parent) if parent > self.trimmed_through else None
        begins = kind == ModelInput.kind or above is None or kind in LEAVES
        self.starts.append(seq if begins else self.starts[above or 0])
        self.holding.append(_with(self.held_by(parent), kind, seq))
        self.counted.append(kind in CONVERSATION)
        self.seqs.append(seq)
        self.parents.append(0 if kind in LEAVES else parent)
        if kind not in LEAVES:
            self.places[seq] = len(self.seqs) - 1

    def held_by(self, seq: int) -> Held:
        """What holds for an entry that comes after this one."""
        if seq == 0:
            return NOTHING
        if seq <= self.trimmed_through or seq not in self.places:
            return self.anchor
        return self.holding[self.places[seq]]

    def cuts(self) -> list[int]:
        """Every entry after which no turn is in the middle, oldest first; the last entry is one of them."""
        allowed, lowest = [], self.seqs[-1] + 1 if self.seqs else 0
        for place in range(len(self.seqs) - 1, -1, -1):
            if self.seqs[place] < lowest:
                allowed.append(self.seqs[place])
            lowest = min(lowest, self.starts[place])
        return allowed[::-1]

    def anchors(self) -> list[int]:
        """The cuts after which everything that hangs on what is gone lives under the same instructions."""
        agreed = {seq for seq, held in zip(self.seqs, self._hanging(), strict=True) if held <= 1}
        return [cut for cut in self.cuts() if cut in agreed and cut > self.trimmed_through]

    def last_turn(self) -> int:
        """The first entry that a trim must leave: of the head's turn, and of the newest one."""
        newest_first = range(len(self.seqs) - 1, -1, -1)
        newest = next((self.starts[place] for place in newest_first if self.counted[place]), 0)
        at_head = self.starts[self.places[self.head]] if self.head in self.places else newest
        return min(newest, at_head)

    def still_holding(self, cut: int) -> list[int]:
        """What was set at or before the cut and is in force for an entry after it."""
        after = {held for seq, held in zip(self.seqs, self.holding, strict=True) if seq > cut}
        return sorted({seq for held in after for seq in held if 0 < seq <= cut})

    def _hanging(self) -> Iterator[int]:
        """For a cut after each entry: under how many different states the entries live that would hang on it."""
        children = Counter(parent for parent in self.parents if parent)
        active: Counter[Held] = Counter()
        active[self.anchor] = sum(count for parent, count in children.items() if parent not in self.places)
        for seq, parent in zip(self.seqs, self.parents, strict=True):
            if parent:
                active[self.held_by(parent)] -= 1
            if seq in self.places:
                active[self.held_by(seq)] += children[seq]
            yield sum(count > 0 for count in active.values())


def cut_for(outline: Outline, *, limit: int) -> int:
    """Where to cut so that at most `limit` messages stay, as whole turns and never the last one; 0: nowhere."""
    excess, bound, cut = sum(outline.counted) - limit, outline.last_turn(), 0
    if excess <= 0:
        return 0
    gone = messages_through(outline)
    for allowed in outline.anchors():
        if allowed >= bound or gone.get(cut, 0) >= excess:
            break
        cut = allowed
    return cut if gone.get(cut) else 0


def steps_to(cut: int, outline: Outline, *, entries: int) -> list[int]:
    """The same cut as a row of smaller ones, of about so many entries each."""
    steps, done = [], outline.trimmed_through
    for allowed in outline.anchors() if cut else ():
        if allowed == cut or (allowed < cut and allowed - done >= entries):
            steps.append(allowed)
            done = allowed
    return steps


def cut_before(seq: int, outline: Outline) -> int:
    """The last cut before entry `seq`; 0: there is none."""
    return max((cut for cut in outline.cuts() if cut < seq), default=0)


def messages_through(outline: Outline) -> dict[int, int]:
    gone, total = {}, 0
    for seq, counts in zip(outline.seqs, outline.counted, strict=True):
        total += counts
        gone[seq] = total
    return gone


def _with(holding: Held, kind: str, seq: int) -> Held:
    if kind not in HELD_KINDS:
        return holding
    changed: Sequence[int] = [seq if kind == held else before for held, before in zip(HELD_KINDS, holding, strict=True)]
    return (changed[0], changed[1], changed[2], changed[3])
