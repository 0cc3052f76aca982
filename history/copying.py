"""The entries of a path, copied into a session of their own.

Thousands of entries take seconds, and on SQLite whoever writes keeps everybody else from writing. So the numbers of the
path are listed once, under a lock, and the copy is written a few hundred entries at a time, each batch a short
transaction. Entries never change and the list is fixed: what happens to the original meanwhile, a head that moves, an
append, cannot make the copy wrong. Entries that are removed before they were copied end it with an error.

The copy is a sound session after every batch, but until the last one it is marked `IN_THE_MAKING`: nobody is served it,
and if its maker dies the purge removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from history import storage
from history.drafts import Draft
from history.entries import Gap, Node
from history.errors import NoSuchEntry
from history.models import Session
from history.paths import Path
from history.reading import read_nodes
from history.transactions import writing

BATCH = 200


def copy_entries(original: Session, numbers: Sequence[int], *, to: UUID) -> None:
    """Copy these entries and show the session to whoever may see it. Raises NoSuchEntry when one of them is gone."""
    copy = _Copy(original, to)
    for start in range(0, len(numbers), BATCH):
        copy.add(numbers[start : start + BATCH])
    copy.show()


class _Copy:
    """What is known of a copy from one batch to the next."""

    def __init__(self, original: Session, session_id: UUID) -> None:
        self.original = original
        self.session_id = session_id
        self.gap = 0  # what stands in the copy for everything that was trimmed from the original
        self.numbers = {0: 0}  # of the original → of the copy

    def add(self, numbers: Sequence[int]) -> None:
        # Read before the turn to write is taken: so others have a chance to write in between.
        nodes = Path(self.original.pk).numbered(numbers, read_nodes)
        if len(nodes) < len(numbers):
            raise NoSuchEntry(f"entries of session {self.original.pk} were removed while it was copied: fork it anew")
        with writing():
            draft = Draft(self._locked(), as_it_came=True)
            for node in nodes:
                self._add(draft, node)
            storage.flush([draft])
            storage.save_sessions([draft.session])

    def show(self) -> None:
        with writing():
            self._locked()
            Session.objects.filter(pk=self.session_id).update(hidden_at=None)

    def _locked(self) -> Session:
        return storage.lock([self.session_id], in_the_making=True)[self.session_id]

    def _add(self, draft: Draft, node: Node) -> None:
        trimmed_through = self.original.trimmed_through
        if trimmed_through and not self.gap and node.seq > trimmed_through:
            draft.add(Gap(reason="trimmed before the fork", at=node.entry.at), after=draft.leaf)
            self.gap = draft.leaf
        draft.add(node.entry.renumbered(self._renumbered), after=draft.leaf)
        self.numbers[node.seq] = draft.leaf

    def _renumbered(self, number: int) -> int:
        return self.numbers.get(number, self.gap)
