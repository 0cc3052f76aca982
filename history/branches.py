"""What lies beside a path: other versions of an entry, where they lead, and the notes that hang on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.db import connection

from history.entries import LEAVES
from history.models import Message, Session

SHOWN_BESIDE = 1_000

# From an entry to its newest child, and on to that one's, until there is none. The sum keeps both databases from
# walking the numbers of the whole session backwards for the highest: the few children are found by their parent.
_DESCEND = """
WITH RECURSIVE descend (seq) AS (
    SELECT seq FROM history_message WHERE session_id = %s AND seq = %s
    UNION ALL
    SELECT (
        SELECT max(below.seq + 0) FROM history_message below
        WHERE below.session_id = %s AND below.parent_seq = descend.seq AND below.kind NOT IN ({kinds})
    ) FROM descend WHERE descend.seq IS NOT NULL
)
SELECT max(seq) FROM descend
"""


def newest_leaf(session: Session, seq: int) -> int:
    """The end of the newest branch through entry `seq`: what to show to whoever asks for that entry."""
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    kinds = sorted(LEAVES)
    sql = _DESCEND.format(kinds=", ".join(["%s"] * len(kinds)))
    with connection.cursor() as cursor:
        cursor.execute(sql, [name, seq, name, *kinds])
        row = cursor.fetchone()
    return row[0] or seq


def versions_of(session: Session, messages: Sequence[Message]) -> dict[int, list[int]]:
    """Parent → its children, where it has several: each is another way the conversation went on."""
    parents = {message.parent_seq for message in messages}
    rows = (
        Message.objects.filter(session=session, parent_seq__in=parents)
        .exclude(kind__in=LEAVES)
        .order_by("seq")
        .values_list("parent_seq", "seq")[:SHOWN_BESIDE]
    )
    children: defaultdict[int, list[int]] = defaultdict(list)
    for parent, seq in rows:
        children[parent].append(seq)
    return {parent: found for parent, found in children.items() if len(found) > 1}


def notes_beside(session: Session, messages: Sequence[Message]) -> list[Message]:
    """Debug logs and moves of the head that hang on these entries, oldest first."""
    seqs = [message.seq for message in messages]
    rows = Message.objects.filter(session=session, parent_seq__in=seqs, kind__in=LEAVES)
    return list(rows.order_by("seq")[:SHOWN_BESIDE])
