"""The way from the start of a session to one of its entries.

The rows on the way to the head are marked (`on_path`). The way to any other leaf is climbed from the leaf until it
meets a marked row; from there on the two are the same. So a page costs what it shows, wherever in the tree it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection

from history import rows
from history.entries import HeadMoved
from history.models import Message, Session

T = TypeVar("T")
Read = Callable[[str, Sequence[Any]], list[T]]

MAX_NUMBERS = 500

_CLIMB = """
WITH RECURSIVE climb (seq, parent_seq, on_path) AS (
    SELECT seq, parent_seq, on_path FROM history_message WHERE session_id = %s AND seq = %s
    UNION ALL
    SELECT above.seq, above.parent_seq, above.on_path FROM climb
    JOIN history_message above ON above.session_id = %s AND above.seq = climb.parent_seq
    WHERE NOT climb.on_path
)
SELECT seq, parent_seq, on_path FROM climb
"""

read_messages: Read[Message] = partial(rows.read, Message)


class Path:
    """The rows from the start of a session to `leaf` (None: the head). What is read of each is up to the caller."""

    def __init__(self, session_id: UUID, *, leaf: int | None = None) -> None:
        self.session_id = _stored(session_id)
        self.beside, self.joins = climb(session_id, leaf) if leaf else ([], 0)
        self.shared = "session_id = %s AND on_path" + ("" if leaf is None else f" AND seq <= {self.joins:d}")

    def older_than(self, seq: int | None, limit: int, read: Read[T]) -> list[T]:
        """Newest first; None: from the leaf on."""
        beside = [number for number in self.beside if seq is None or number < seq][:limit]
        found = self._numbered(beside, "seq DESC", read)
        if len(found) == limit:
            return found
        bound, ending = ("", []) if seq is None else (" AND seq < %s", [seq])
        where = f"{self.shared}{bound} ORDER BY seq DESC LIMIT %s"
        return found + read(where, [self.session_id, *ending, limit - len(found)])

    def newer_than(self, seq: int, limit: int, read: Read[T]) -> list[T]:
        """Oldest first."""
        found = read(f"{self.shared} AND seq > %s ORDER BY seq LIMIT %s", [self.session_id, seq, limit])
        beside = [number for number in reversed(self.beside) if number > seq][: limit - len(found)]
        return found + self._numbered(beside, "seq", read)

    def state(self, read: Read[T]) -> list[T]:
        """Everything on the path that says what holds from there on, oldest first."""
        found = read(f"{self.shared} AND is_state ORDER BY seq", [self.session_id])
        for start in range(0, len(self.beside), MAX_NUMBERS):
            numbers = self.beside[::-1][start : start + MAX_NUMBERS]
            found += self._numbered(numbers, "seq", read, also=" AND is_state")
        return found

    def numbered(self, numbers: Sequence[int], read: Read[T]) -> list[T]:
        """These entries, oldest first."""
        return self._numbered(numbers, "seq", read)

    def _numbered(self, numbers: Sequence[int], order: str, read: Read[T], *, also: str = "") -> list[T]:
        if not numbers:
            return []
        places = ", ".join(["%s"] * len(numbers))
        return read(f"session_id = %s AND seq IN ({places}){also} ORDER BY {order}", [self.session_id, *numbers])


def climb(session_id: UUID, leaf: int) -> tuple[list[int], int]:
    """From `leaf` up to the head's path: the entries beside it, newest first, and where they join it.

    A branch that meets no row of the path begins at the start (0) or at the anchor of a trim: its topmost parent says.
    """
    name = _stored(session_id)
    with connection.cursor() as cursor:
        cursor.execute(_CLIMB, [name, leaf, name])
        steps = cursor.fetchall()
    beside = [seq for seq, _, on_path in steps if not on_path]
    meets = next((seq for seq, _, on_path in steps if on_path), None)
    if meets is not None:
        return beside, meets
    return beside, steps[-1][1] if steps else 0


def head_at(session: Session, version: int) -> int:
    """Which entry was the head when the session had `version` entries."""
    if version == session.version:  # an instance that is behind knows nothing of what came after it
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
    return parent if kind == HeadMoved.kind else seq


def _stored(session_id: UUID) -> Any:
    return Session._meta.pk.get_db_prep_value(session_id, connection)
