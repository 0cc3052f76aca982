"""Tree of imported entries, ordered with parents before their children.

Files name parents that they do not hold, that stand further down, or that lead round in a circle. Then the part that
hangs on such a parent is an island: it is joined to what stands before it in the file by a visible Gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from history.dialects.json_access import compact
from history.entries import LEAVES, Entry, Gap, Summary, entry_to_json
from history.formats.base import Notes, SourceNode, chain_id, gettext_noop

ISLAND = gettext_noop("An entry's parent is missing from the file: what follows was joined here.")


@dataclass
class SourceItem:
    """One entry and the id of what it follows; '' is the start. A summary names the last entry that it stands for."""

    entry: Entry
    parent: str
    covers: str = ""


@dataclass
class Tree:
    """`items` stand in the order of the source. `leaf` is where the conversation stands; '': at its last entry."""

    notes: Notes
    items: dict[str, SourceItem] = field(default_factory=dict)
    leaf: str = ""

    def add(self, source_id: str, entry: Entry, *, parent: str, covers: str = "") -> str:
        """Hang an entry on another. An id that is used twice gets a number. Returns the id under which it stands."""
        name, number = source_id, 1
        while name in self.items:
            number += 1
            name = f"{source_id}#{number}"
        self.items[name] = SourceItem(entry, parent, covers)
        return name

    def nodes(self) -> tuple[list[SourceNode], int | None]:
        """All of them, and the place of the leaf."""
        order = _Order(self)
        for name in self.items:
            order.place(name)
        return order.nodes, order.places.get(self.leaf, find_last_place(order.nodes))


class _Order:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.nodes: list[SourceNode] = []
        self.places: dict[str, int] = {}

    def place(self, name: str) -> None:
        """The entry, and before it those above it that stand further down in the file."""
        waiting: dict[str, None] = {}
        while name and name not in self.places and name in self.tree.items and name not in waiting:
            waiting[name] = None
            name = self.tree.items[name].parent
        missing = name if name and name not in self.places else ""
        for waits in reversed(waiting):
            parent = self._gap(waits, missing) if missing else self.places.get(self.tree.items[waits].parent)
            missing = ""
            self._put(waits, self._numbered(self.tree.items[waits]), parent)

    def _gap(self, name: str, missing: str) -> int:
        """Put a gap in the place of a missing parent; its other children follow the gap, too."""
        entry = self.tree.items[name].entry
        last = len(self.nodes) - 1 if self.nodes else None
        self.tree.notes("repaired", ISLAND, where=name)
        gap = Gap(reason="Something is missing here in the imported file.", at=entry.at)
        self.places[missing] = self._put(f"gap:{missing}", gap, last)
        return self.places[missing]

    def _put(self, name: str, entry: Entry, parent: int | None) -> int:
        self.nodes.append(SourceNode(entry=entry, parent=parent, source_id=name))
        self.places[name] = len(self.nodes) - 1
        return self.places[name]

    def _numbered(self, item: SourceItem) -> Entry:
        """A summary stands for its path up to the entry that it names."""
        last = self.places.get(item.covers)
        if not isinstance(item.entry, Summary) or last is None:
            return item.entry
        return replace(item.entry, first=1, last=last + 1)


def find_last_place(nodes: Sequence[SourceNode]) -> int | None:
    """The last node that something can follow."""
    return next((place for place in range(len(nodes) - 1, -1, -1) if nodes[place].entry.kind not in LEAVES), None)


def add_ids(entries: Iterable[Entry]) -> list[tuple[str, Entry]]:
    """Entries of a source without ids: each gets one made from all that was said up to it."""
    named: list[tuple[str, Entry]] = []
    last = ""
    for entry in entries:
        said = {name: value for name, value in entry_to_json(entry).items() if name != "at"}
        last = chain_id(last, compact(said))
        named.append((last, entry))
    return named


def chain_nodes(entries: Sequence[tuple[str, Entry]]) -> list[SourceNode]:
    """Entries that simply follow each other."""
    return [
        SourceNode(entry=entry, parent=place - 1 if place else None, source_id=name)
        for place, (name, entry) in enumerate(entries)
    ]
