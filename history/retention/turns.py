"""Turns of a session, and where it may be cut: arithmetic over entry numbers, without texts.

A *turn* is an input and everything below it until the next input, on any branch. No cut has entries of a turn on both
sides. Instructions, tools, notebooks and plans stay if they still apply after the cut. A trim has one anchor for all
branches, so it waits while branches from it have different instructions.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from history.entries import CONVERSATION, NEVER_PARENTS, NEWEST_APPLIES, ModelInput

Held = tuple[int, ...]  # the entries that set the instruction, tools, notebook and plan; 0: none
NOTHING: Held = (0, 0, 0, 0)


int_array = partial(array, "q")


@dataclass
class Outline:
    """The structure of one session. Entries are added oldest first."""

    trimmed_through: int = 0
    head: int = 0
    anchor: Held = NOTHING  # what an earlier trim kept
    seqs: array[int] = field(default_factory=int_array)
    parents: array[int] = field(default_factory=int_array)  # 0 for leaves, which have no children
    starts: array[int] = field(default_factory=int_array)  # where the turn of each entry begins
    counted: bytearray = field(default_factory=bytearray)  # 1: part of the conversation
    holding: list[Held] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # seq → index, of everything that can be a parent

    def add(self, seq: int, parent: int, kind: str) -> None:
        if seq <= self.trimmed_through:
            self.anchor = _with(self.anchor, kind, seq)
        above = self.places.get(parent) if parent > self.trimmed_through else None
        begins = kind == ModelInput.kind or above is None or kind in NEVER_PARENTS
        self.starts.append(seq if begins else self.starts[above or 0])
        self.holding.append(_with(self.held_by(parent), kind, seq))
        self.counted.append(kind in CONVERSATION)
        self.seqs.append(seq)
        self.parents.append(0 if kind in NEVER_PARENTS else parent)
        if kind not in NEVER_PARENTS:
            self.places[seq] = len(self.seqs) - 1

    def held_by(self, seq: int) -> Held:
        """What applies to an entry that follows this one."""
        if seq == 0:
            return NOTHING
        if seq <= self.trimmed_through or seq not in self.places:
            return self.anchor
        return self.holding[self.places[seq]]

    def cuts(self) -> list[int]:
        """Every entry after which no turn is unfinished, oldest first; the last entry is one of them."""
        allowed, lowest = [], self.seqs[-1] + 1 if self.seqs else 0
        for place in range(len(self.seqs) - 1, -1, -1):
            if self.seqs[place] < lowest:
                allowed.append(self.seqs[place])
            lowest = min(lowest, self.starts[place])
        return allowed[::-1]

    def anchors(self) -> list[int]:
        """Cuts after which all entries that follow the anchor have the same instructions."""
        agreed = {seq for seq, held in zip(self.seqs, self._hanging(), strict=True) if held <= 1}
        return [cut for cut in self.cuts() if cut in agreed and cut > self.trimmed_through]

    def last_turn(self) -> int:
        """The first entry that a trim must keep: of the head's turn, and of the newest one."""
        newest_first = range(len(self.seqs) - 1, -1, -1)
        newest = next((self.starts[place] for place in newest_first if self.counted[place]), 0)
        at_head = self.starts[self.places[self.head]] if self.head in self.places else newest
        return min(newest, at_head)

    def still_holding(self, cut: int) -> list[int]:
        """State entries at or before the cut that still apply after it."""
        after = {held for seq, held in zip(self.seqs, self.holding, strict=True) if seq > cut}
        return sorted({seq for held in after for seq in held if 0 < seq <= cut})

    def _hanging(self) -> Iterator[int]:
        """For a cut after each entry: the number of different states of the entries that would follow the anchor."""
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
    """Where to cut so that at most `limit` messages stay, as whole turns and never the last one; or 0."""
    excess, bound, cut = sum(outline.counted) - limit, outline.last_turn(), 0
    if excess <= 0:
        return 0
    gone = dict(zip(outline.seqs, accumulate(outline.counted), strict=True))  # messages up to each entry
    for allowed in outline.anchors():
        if allowed >= bound or gone.get(cut, 0) >= excess:
            break
        cut = allowed
    return cut if gone.get(cut) else 0


def steps_to(cut: int, outline: Outline, *, entries: int) -> list[int]:
    """The same cut as a series of cuts of about `entries` entries."""
    steps, done = [], outline.trimmed_through
    for allowed in outline.anchors() if cut else ():
        if allowed == cut or (allowed < cut and allowed - done >= entries):
            steps.append(allowed)
            done = allowed
    return steps


def cut_before(seq: int, outline: Outline) -> int:
    """The last cut before entry `seq`, or 0."""
    return max((cut for cut in outline.cuts() if cut < seq), default=0)


def _with(holding: Held, kind: str, seq: int) -> Held:
    if kind not in NEWEST_APPLIES:
        return holding
    return tuple(seq if kind == held else before for held, before in zip(NEWEST_APPLIES, holding, strict=True))
