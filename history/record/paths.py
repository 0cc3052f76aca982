"""Paths from the start of a session to an entry, and branches beside the path to its head.

Rows on the path to the head are marked (`on_path`). The path to another leaf is climbed from the leaf until it meets a
marked row, and only as far as a page needs, so that a page costs what it shows, however long the branch is.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from history.db import bulk
from history.db.prepared import prepared
from history.entries import NEVER_PARENTS, HeadMoved, Retracted
from history.models import Message, Session
from history.record.loading import entries_of

T = TypeVar("T")
Read = Callable[[str, Sequence[Any]], list[T]]

MAX_NUMBERS = 500
TO_THE_TOP = 2**31 - 1
CLIMB_STEPS = 100

_CLIMB = """
WITH RECURSIVE climb (seq, parent_seq, on_path, step) AS (
    SELECT seq, parent_seq, on_path, 1 FROM history_message WHERE session_id = %s AND seq = %s
    UNION ALL
    SELECT above.seq, above.parent_seq, above.on_path, climb.step + 1 FROM climb
    JOIN history_message above ON above.session_id = %s AND above.seq = climb.parent_seq
    WHERE NOT climb.on_path AND climb.step < %s
)
SELECT seq, parent_seq, on_path FROM climb
"""

read_messages: Read[Message] = partial(bulk.read, Message)


def read_kinds(where: str, parameters: Sequence[Any]) -> list[tuple[int, str]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT seq, kind FROM history_message WHERE {where}", parameters)  # noqa: S608
        return list(cursor.fetchall())


class Climb:
    """From an entry up to the head's path: the entries beside it, newest first, and the entry where they join it."""

    def __init__(self, session_id: UUID, start: int | None) -> None:
        """None means the head, which is on the path."""
        self.session_id = _stored(session_id)
        self.beside: list[int] = []
        self.joins = TO_THE_TOP if start is None else None  # None until the path is reached
        self._next = start

    def climb_steps(self, steps: int) -> None:
        """Climb `steps` entries further, and at least as many as before, so that a long branch takes few queries."""
        steps = max(steps, len(self.beside))
        with connection.cursor() as cursor:
            cursor.execute(_CLIMB, [self.session_id, self._next, self.session_id, steps])
            met = cursor.fetchall()
        for seq, parent, on_path in met:
            if on_path:
                self.joins = seq
                return
            self.beside.append(seq)
            self._next = parent
        if len(met) < steps:  # the branch begins at the start (0) or at the anchor of a trim: its topmost parent
            self.joins = self._next if self.beside else 0

    def climb_below(self, seq: int, *, steps: int) -> None:
        """Climb until an entry at or before `seq`, or the path, is met."""
        while self.joins is None and not (self.beside and self.beside[-1] <= seq):
            self.climb_steps(steps)


class Path:
    """The rows from the start of a session to `leaf` (None means the head). `read` functions choose the columns."""

    def __init__(self, session_id: UUID, *, leaf: int | None = None) -> None:
        self.session_id = _stored(session_id)
        self.leaf, self.climb = leaf, Climb(session_id, leaf)

    def older_than(self, seq: int | None, limit: int, read: Read[T]) -> list[T]:
        """Newest first. None means from the leaf."""
        found = self.numbered(self._beside_before(seq, limit), read, order="seq DESC")
        if len(found) == limit:
            return found
        bound, ending = ("", []) if seq is None else (" AND seq < %s", [seq])
        where = f"{self._shared()}{bound} ORDER BY seq DESC LIMIT %s"
        return found + read(where, [self.session_id, *ending, limit - len(found)])

    def newer_than(self, seq: int, limit: int, read: Read[T]) -> list[T]:
        self.climb.climb_below(seq, steps=limit)
        found: list[T] = []
        if (self.climb.joins or 0) > seq:
            found = read(f"{self._shared()} AND seq > %s ORDER BY seq LIMIT %s", [self.session_id, seq, limit])
        beside = [number for number in reversed(self.climb.beside) if number > seq][: limit - len(found)]
        return found + self.numbered(beside, read)

    def state(self, read: Read[T]) -> list[T]:
        found = read(f"{self._shared()} AND is_state ORDER BY seq", [self.session_id])
        beside = self.climb.beside[::-1]
        for start in range(0, len(beside), MAX_NUMBERS):
            numbers = beside[start : start + MAX_NUMBERS]
            found += self.numbered(numbers, read, also=" AND is_state")
        return found

    def numbers(self) -> list[int]:
        sql = f"SELECT seq FROM history_message WHERE {self._shared()} ORDER BY seq"  # noqa: S608 - words of our own
        with connection.cursor() as cursor:
            cursor.execute(sql, [self.session_id])
            return [*(seq for (seq,) in cursor.fetchall()), *reversed(self.climb.beside)]

    def _shared(self) -> str:
        """A condition for the rows that this path shares with the head's path."""
        if self.leaf is None:
            return "session_id = %s AND on_path"
        self.climb.climb_below(0, steps=TO_THE_TOP)
        return f"session_id = %s AND on_path AND seq <= {self.climb.joins or 0:d}"

    def _beside_before(self, seq: int | None, limit: int) -> list[int]:
        """The newest entries beside the head's path that are older than `seq`: `limit`, or all of them."""
        while True:
            older = [number for number in self.climb.beside if seq is None or number < seq]
            if self.climb.joins is not None or len(older) >= limit:
                return older[:limit]
            self.climb.climb_steps(limit)

    def numbered(self, numbers: Sequence[int], read: Read[T], *, order: str = "seq", also: str = "") -> list[T]:
        if not numbers:
            return []
        places = ", ".join(["%s"] * len(numbers))
        return read(f"session_id = %s AND seq IN ({places}){also} ORDER BY {order}", [self.session_id, *numbers])


def climb(session_id: UUID, leaf: int) -> tuple[list[int], int]:
    """The whole way from `leaf` up to the head's path, and the entry where it joins it."""
    way = Climb(session_id, leaf)
    way.climb_below(0, steps=TO_THE_TOP)
    return way.beside, way.joins or 0


def is_on_way(session_id: UUID, seq: int, *, to: int) -> bool:
    """Whether entry `seq` is on the path from the start of the session to entry `to`."""
    if seq in (0, to):
        return True
    if seq > to:
        return False
    way = Climb(session_id, to)
    way.climb_below(seq, steps=CLIMB_STEPS)
    if way.joins is None or seq > way.joins:
        return seq in way.beside
    return is_on_head_path(session_id, seq)


def head_at(session: Session, version: int) -> int:
    if version == session.version:
        return session.head
    moves = Message.objects.of(session).filter(seq__lte=version, moved_head=True).order_by("-seq")
    seq, parent, kind = moves.values_list("seq", "parent_seq", "kind").first() or (0, 0, "")
    return parent if kind == HeadMoved.kind else seq


def _stored(session_id: UUID) -> Any:
    return Session._meta.pk.get_db_prep_value(session_id, connection)


SHOWN_BESIDE = 1_000
COMPACTED = "compacted"  # The reason of a move after which a program continued from its own summary. The relay sets it.

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


def newest_descendant(session: Session, seq: int, *, steps: int) -> int:
    return _descend(session, seq, choice=_NEWEST, through=session.version, steps=steps)[-1]


def descendant_towards(session: Session, seq: int, *, to: int, steps: int) -> int:
    """The entry `steps` below `seq` on the way to `to`, if there is only one way; else `to`."""
    way = _descend(session, seq, choice=_ONLY, through=to, steps=steps)
    return way[-1] if len(way) > steps else to


def behind_notes(session_id: UUID, seq: int) -> int:
    """The entry to continue after: `seq` or the last state entry behind it, unless messages follow that state."""
    place = seq
    while child := _newest_child.first(session_id, place):
        place, is_state = child
        if not is_state:
            return seq
    return place


@prepared
def _newest_child(session_id: UUID, seq: int) -> QuerySet[Message, tuple[int, bool]]:
    below = Message.objects.of(session_id).possible_parents().order_by("-seq")
    return below.filter(parent_seq=seq).values_list("seq", "is_state")[:1]


def is_on_head_path(session_id: UUID, seq: int) -> bool:
    return bool(_on_head_path(session_id, seq))


@prepared
def _on_head_path(session_id: UUID, seq: int) -> QuerySet[Message, int]:
    return Message.objects.at(session_id, seq).filter(on_path=True).values_list("seq", flat=True)


def retracted_in(session_id: UUID) -> set[int]:
    rows = Message.objects.on_path(session_id).filter(is_state=True, kind=Retracted.kind)
    return {entry.seq for entry in entries_of(list(rows)) if isinstance(entry, Retracted)}


def has_continuation(session: Session, seq: int) -> bool:
    return len(_descend(session, seq, choice=_NEWEST, through=session.version, steps=1)) > 1


def _descend(session: Session, seq: int, *, choice: str, through: int, steps: int) -> list[int]:
    name = _stored(session.pk)
    kinds = sorted(NEVER_PARENTS)
    sql = _DESCEND.format(choice=choice, kinds=", ".join(["%s"] * len(kinds)))
    with connection.cursor() as cursor:
        cursor.execute(sql, [name, seq, name, through, *kinds, steps])
        return [number for (number,) in cursor.fetchall()] or [seq]


def versions_of(session: Session, messages: Sequence[Message]) -> dict[int, list[int]]:
    """Parents with several children: each child is another version of the conversation."""
    parents = sorted({message.parent_seq for message in messages})
    children: defaultdict[int, list[int]] = defaultdict(list)
    rows = Message.objects.of(session).filter(parent_seq__in=parents).possible_parents()
    # By number alone, SQLite would walk the whole session. PostgreSQL would, too, if the numbers were one parameter.
    found = rows.order_by("parent_seq", "seq").values_list("parent_seq", "seq")
    for parent, seq in found[:SHOWN_BESIDE]:
        children[parent].append(seq)
    return {parent: below for parent, below in children.items() if len(below) > 1}


def notes_beside(session: Session, messages: Sequence[Message]) -> list[Message]:
    """Debug logs and head moves that follow these entries; of each entry, oldest first."""
    seqs = [message.seq for message in messages]
    rows = Message.objects.of(session).filter(parent_seq__in=seqs, kind__in=NEVER_PARENTS)
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
