"""Branches of a session: versions of an entry, their newest ends, and notes beside the path."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import connection

from history.entries import LEAVES, HeadMoved, Retracted
from history.models import Message, Session
from history.record.loading import entries_of

SHOWN_BESIDE = 1_000
# The reason of a move after which a program continued from its own summary. The relay sets it.
COMPACTED = "compacted"

# From an entry to one of its children, and so on. `+ 0` keeps both databases from walking the numbers of the whole
# session for the highest: the few children are found by their parent.
_DESCEND = """
WITH RECURSIVE descend (seq, step) AS (
    SELECT seq, 0 FROM history_message WHERE session_id = %s AND seq = %s
    UNION ALL
    SELECT (
        SELECT {choice} FROM history_message below
        WHERE below.session_id = %s AND below.parent_seq = descend.seq AND below.seq + 0 <= %s
        AND below.kind NOT IN ({kinds})
    ), descend.step + 1 FROM descend WHERE descend.seq IS NOT NULL AND descend.step < %s
)
SELECT seq FROM descend WHERE seq IS NOT NULL ORDER BY seq
"""
_NEWEST = "max(below.seq + 0)"
_ONLY = "CASE WHEN count(*) = 1 THEN max(below.seq + 0) END"


def newest_below(session: Session, seq: int, *, steps: int) -> int:
    """The entry `steps` further down the newest branch through `seq`, or the end of that branch."""
    return _descend(session, seq, choice=_NEWEST, through=session.version, steps=steps)[-1]


def below_on_the_way(session: Session, seq: int, *, to: int, steps: int) -> int:
    """The entry `steps` below `seq` on the way to `to`, if there is only one way; else `to`."""
    way = _descend(session, seq, choice=_ONLY, through=to, steps=steps)
    return way[-1] if len(way) > steps else to


def behind_notes(session_id: UUID, seq: int) -> int:
    """The entry to continue after: `seq` or the last state entry behind it, unless messages follow that state."""
    below = Message.objects.of(session_id).without_leaves().order_by("-seq")
    place = seq
    while child := below.filter(parent_seq=place).values_list("seq", "is_state").first():
        if not child[1]:
            return seq
        place = child[0]
    return place


def retracted_in(session_id: UUID) -> set[int]:
    """The retracted summaries on the path to the head."""
    rows = Message.objects.on_path(session_id).filter(is_state=True, kind=Retracted.kind)
    return {entry.seq for entry in entries_of(list(rows)) if isinstance(entry, Retracted)}


def has_continuation(session: Session, seq: int) -> bool:
    return len(_descend(session, seq, choice=_NEWEST, through=session.version, steps=1)) > 1


def _descend(session: Session, seq: int, *, choice: str, through: int, steps: int) -> list[int]:
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    kinds = sorted(LEAVES)
    sql = _DESCEND.format(choice=choice, kinds=", ".join(["%s"] * len(kinds)))
    with connection.cursor() as cursor:
        cursor.execute(sql, [name, seq, name, through, *kinds, steps])
        return [number for (number,) in cursor.fetchall()] or [seq]


def versions_of(session: Session, messages: Sequence[Message]) -> dict[int, list[int]]:
    """Parents with several children: each child is another version of the conversation."""
    parents = {message.parent_seq for message in messages}
    rows = (
        Message.objects.of(session)
        .filter(parent_seq__in=parents)
        .without_leaves()
        .order_by("parent_seq", "seq")  # by number alone, SQLite would walk the whole session
        .values_list("parent_seq", "seq")[:SHOWN_BESIDE]
    )
    children: defaultdict[int, list[int]] = defaultdict(list)
    for parent, seq in rows:
        children[parent].append(seq)
    return {parent: found for parent, found in children.items() if len(found) > 1}


def notes_beside(session: Session, messages: Sequence[Message]) -> list[Message]:
    """Debug logs and head moves that follow these entries; of each entry, oldest first."""
    seqs = [message.seq for message in messages]
    rows = Message.objects.of(session).filter(parent_seq__in=seqs, kind__in=LEAVES)
    return list(rows.order_by("parent_seq", "seq")[:SHOWN_BESIDE])


def compactions_in(session: Session, forks: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """First entries of branches that a program began with its own summary → the previous version.

    `forks` are the entries with several continuations, each with the entries that follow it.
    """
    rows = Message.objects.of(session).filter(parent_seq__in=list(forks), kind=HeadMoved.kind)
    moves = list(rows.order_by("parent_seq", "seq")[:SHOWN_BESIDE])
    found: dict[int, int] = {}
    for move, entry in zip(moves, entries_of(moves), strict=True):
        older = [seq for seq in forks[move.parent_seq] if seq < move.seq]
        newer = [seq for seq in forks[move.parent_seq] if seq > move.seq]
        if isinstance(entry, HeadMoved) and entry.reason == COMPACTED and older and newer:
            found[newer[0]] = older[-1]
    return found
