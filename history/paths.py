"""Walking the tree of one session from an entry towards the start."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

from history.models import Message, Session

_CLIMB = """
WITH RECURSIVE climb (seq, parent_seq, on_path) AS (
    SELECT seq, parent_seq, on_path FROM history_message WHERE session_id = %s AND seq = %s
    UNION ALL
    SELECT above.seq, above.parent_seq, above.on_path FROM climb
    JOIN history_message above ON above.session_id = %s AND above.seq = climb.parent_seq
    WHERE NOT climb.on_path
)
SELECT seq, on_path FROM climb
"""


def climb(session_id: UUID, leaf: int) -> tuple[list[int], int]:
    """From `leaf` up to the head's path: the entries beside it, newest first, and where they join it (0: nowhere)."""
    name = Session._meta.pk.get_db_prep_value(session_id, connection)
    with connection.cursor() as cursor:
        cursor.execute(_CLIMB, [name, leaf, name])
        steps = cursor.fetchall()
    beside = [seq for seq, on_path in steps if not on_path]
    joins = next((seq for seq, on_path in steps if on_path), 0)
    return beside, joins


def head_at(session: Session, version: int) -> int:
    """Which entry was the head when the session had `version` entries."""
    if version >= session.version:
        return session.head
    moved = (
        Message.objects.filter(session=session, seq__lte=version, moved_head=True)
        .order_by("-seq")
        .values_list("seq", "parent_seq", "kind")
        .first()
    )
    if moved is None:
        return 0
    seq, parent, kind = moved
    return parent if kind == "head_moved" else seq
