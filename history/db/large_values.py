"""Release of large values that a database connection would keep in memory.

SQLite keeps the values of a prepared statement until the statement is used again, and Python keeps 128 statements for
each connection. The buffers of PostgreSQL's client library never shrink. So each thread that stores an answer of 30 MB
would keep 30 MB or more of it. A connection through which a large value went is closed when its thread is done; the
next query opens another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection

LARGE = 1_000_000


class _Seen(threading.local):
    is_large = False


_seen = _Seen()


def watch_connection(*, connection: Any, **_: Any) -> None:
    """Look at the values of all statements. For Django's signal `connection_created`."""
    if _note_large_values not in connection.execute_wrappers:
        connection.execute_wrappers.append(_note_large_values)


def release_large_values() -> None:
    """Close the connection of this thread if a large value went through it. No cursor may be in use."""
    if _seen.is_large and not connection.in_atomic_block:
        _seen.is_large = False
        connection.close()


def execute_bound(sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement once for each row, with values that go to PostgreSQL beside the statement.

    Django's cursor writes values into the text of the statement: a process that stored an answer of 16 MB grew by
    258 MB for a moment, and by some 130 MB this way. For statements that return no rows, and whose columns give
    every value its type.
    """
    if connection.vendor != "postgresql":
        with connection.cursor() as cursor:
            cursor.executemany(sql, rows)
        return
    from psycopg import Cursor

    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        _seen.is_large = _seen.is_large or any(map(_has_large, rows))
        cursor.executemany(sql, rows)


def _note_large_values(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    if params and not _seen.is_large:
        _seen.is_large = any(map(_has_large, params)) if many else _has_large(params)
    return execute(sql, params, many, context)


def _has_large(values: Any) -> bool:
    return any(_size(value) > LARGE for value in (values.values() if isinstance(values, dict) else values))


def _size(value: Any) -> int:
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return len(value)
    # PostgreSQL's driver wraps bytes in an object of its own.
    wrapped = getattr(value, "obj", None)
    return len(wrapped) if isinstance(wrapped, (bytes, bytearray, memoryview)) else 0
