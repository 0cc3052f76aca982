"""Copying of a path into a new session, a few hundred entries at a time, because SQLite has one writer.

The numbers of the path are listed once, under a lock; entries never change, so no append or moved head can make the
copy wrong. It is `incomplete` until the last batch: not shown, and removed by a purge if the process dies.
"""

from collections.abc import Sequence
from uuid import UUID

from history.db.transactions import writing
from history.entries import Gap, Numbering
from history.errors import NoSuchEntry
from history.models import Session
from history.record import writer
from history.record.loading import read_nodes
from history.record.paths import Path
from history.record.row_builder import Draft

BATCH = 200


def copy_entries(original: Session, numbers: Sequence[int], *, edges: Sequence[int], to: UUID) -> None:
    """Copy these entries and open the session. Raises NoSuchEntry if one of them is gone.

    `edges` are the numbers at which summaries begin and end (`edges_of`). Trimmed entries become a gap, and one more at
    each edge, so that each summary has a range of its own in the copy, as it had before.
    """
    copied = Numbering()
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        # Read outside of the transaction, so that others can write in between.
        nodes = Path(original.pk).numbered(batch, read_nodes)
        if len(nodes) < len(batch):
            raise NoSuchEntry(f"entries of session {original.pk} were removed during the copy: fork it again")
        with writing():
            draft = Draft(writer.lock([to], incomplete=True)[to], is_verbatim=True)
            for node in nodes:
                first = copied.last + 1
                trimmed = [first, *(edge for edge in edges if first < edge < node.seq)]
                for number in trimmed if node.parent != copied.last else ():
                    draft.add(Gap(reason="trimmed before the fork", at=node.entry.at), after=draft.leaf)
                    copied.add(number, draft.leaf)
                draft.add(node.entry.renumbered(copied), after=draft.leaf)
                copied.add(node.seq, draft.leaf)
            writer.flush([draft])
            writer.save_sessions([draft.session])
    with writing():
        writer.lock([to], incomplete=True)
        writer.change(to, state=Session.State.OPEN)
