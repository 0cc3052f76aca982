"""Write transactions: one atomic block, with statements that run last before the commit.

SQLite has one writer at a time and others poll, which is slow and unfair; so the threads of a process wait for a lock.
Rows that every writer updates (the counts of today) would block all others if written first: `run_last` delays them.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction

_turn = threading.Lock()

Work = dict[Callable[[list[Any]], None], list[Any]]


class _Blocks(threading.local):
    """The open `writing` blocks of a thread, outermost first, each with its work for the end."""

    def __init__(self) -> None:
        self.open: list[Work] = []


_blocks = _Blocks()


@contextmanager
def writing(*, savepoint: bool = True) -> Iterator[None]:
    """A transaction. Inside another one it is part of that, and durable when that commits.

    Without a `savepoint`, an error in an inner block ends the outer transaction too. That saves two statements where no
    caller continues after such an error.
    """
    turn = _turn if connection.vendor == "sqlite" and not connection.in_atomic_block else nullcontext()
    with turn, transaction.atomic(savepoint=savepoint), _block():
        yield


def run_last(function: Callable[[list[Any]], None], item: Any) -> None:
    """Call `function` with all its items at the end of the outermost `writing` block; outside of a block, at once."""
    if not _blocks.open:
        with writing():
            function([item])
        return
    _blocks.open[-1].setdefault(function, []).append(item)


@contextmanager
def _block() -> Iterator[None]:
    work: Work = {}
    _blocks.open.append(work)
    try:
        yield
    finally:
        _blocks.open.pop()
    # A block that is rolled back does not come here: its items are dropped.
    for function, items in work.items():
        if _blocks.open:
            _blocks.open[-1].setdefault(function, []).extend(items)
        else:
            function(items)


# BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL
_SQLITE_AWAY = frozenset({5, 6, 7, 8, 9, 10, 13, 14, 15})
# Classes of SQLSTATE: connection, rollback (deadlock), resources (disk full), shutdown, system error.
_POSTGRES_AWAY = frozenset({"08", "40", "53", "57", "58"})
_READ_ONLY, _LOCK_NOT_AVAILABLE = "25006", "55P03"


def is_database_away(error: BaseException) -> bool:
    """Whether a retry may succeed: stopped, restarting, locked, read-only, disk full. Not a wrong statement."""
    cause = error.__cause__
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    if code is not None:
        return code & 0xFF in _SQLITE_AWAY
    if state:
        return state[:2] in _POSTGRES_AWAY or state in (_READ_ONLY, _LOCK_NOT_AVAILABLE)
    return isinstance(error, (OperationalError, InterfaceError))


def update_statistics() -> None:
    """Let SQLite's planner count the tables that have grown. PostgreSQL does that by itself.

    The limit keeps it to milliseconds at any size: a thousand rows of each index are enough to know how it is filled.
    """
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA analysis_limit = 1000")
            cursor.execute("PRAGMA optimize")
