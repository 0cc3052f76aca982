"""Copying of a path into a new session, a few hundred entries at a time.

Thousands of entries take seconds, and SQLite has one writer at a time. So the numbers of the path are listed once,
under a lock, and each batch is a short transaction. Entries never change and the list is fixed, so a moved head or an
append to the original cannot make the copy wrong. If entries are removed before they were copied, the copy fails.

The copy is a valid session after every batch, but `incomplete` until the last one: it is not shown, and if the process
dies, a purge removes it.
"""

from collections.abc import Sequence
from uuid import UUID

from history.db.transactions import writing
from history.entries import Gap, Node, Numbering
from history.errors import NoSuchEntry
from history.models import Session
from history.record import writer
from history.record.loading import read_nodes
from history.record.paths import Path
from history.record.row_builder import Draft

BATCH = 200


def copy_entries(original: Session, numbers: Sequence[int], *, edges: Sequence[int], to: UUID) -> None:
    """Copy these entries and open the session. Raises NoSuchEntry if one of them is gone.

    `edges` are the numbers at which summaries begin and end (`edges_of`).
    """
    copy = _Copy(original, edges, to)
    for start in range(0, len(numbers), BATCH):
        copy.add(numbers[start : start + BATCH])
    copy.show()


class _Copy:
    """The state of a copy from one batch to the next."""

    def __init__(self, original: Session, edges: Sequence[int], session_id: UUID) -> None:
        self.original = original
        self.edges = edges
        self.session_id = session_id
        self.numbers = Numbering()

    def add(self, numbers: Sequence[int]) -> None:
        # Read outside of the transaction, so that others can write in between.
        nodes = Path(self.original.pk).numbered(numbers, read_nodes)
        if len(nodes) < len(numbers):
            raise NoSuchEntry(f"entries of session {self.original.pk} were removed while it was copied: fork it anew")
        with writing():
            draft = Draft(self._locked(), is_verbatim=True)
            for node in nodes:
                self._add(draft, node)
            writer.flush([draft])
            writer.save_sessions([draft.session])

    def show(self) -> None:
        with writing():
            self._locked()
            writer.change(self.session_id, state=Session.State.OPEN)

    def _locked(self) -> Session:
        return writer.lock([self.session_id], incomplete=True)[self.session_id]

    def _add(self, draft: Draft, node: Node) -> None:
        for number in self._trimmed_before(node):
            draft.add(Gap(reason="trimmed before the fork", at=node.entry.at), after=draft.leaf)
            self.numbers.add(number, draft.leaf)
        draft.add(node.entry.renumbered(self.numbers), after=draft.leaf)
        self.numbers.add(node.seq, draft.leaf)

    def _trimmed_before(self, node: Node) -> list[int]:
        """The numbers of gaps before an entry: one for trimmed entries, and one more at each edge of a summary.

        So each summary has a range of its own in the copy, as it had before.
        """
        last = self.numbers.last
        if node.parent == last:
            return []
        return [last + 1, *(edge for edge in self.edges if last + 1 < edge < node.seq)]
