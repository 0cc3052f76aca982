"""Parameters of SQL statements: long lists in one parameter, and release of large values.

SQLite statements keep their values until they are used again, and the buffers of PostgreSQL's library never shrink. So
a connection through which a large value went is closed when its thread is done.
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import RawSQL

_KINDS: dict[type, str] = {UUID: "uuid", int: "bigint", str: "text"}


def among(keys: Iterable[UUID | int | str], *, kind: type = UUID) -> RawSQL:
    """All keys in one parameter, for `filter(pk__in=among(ids))`. PostgreSQL needs their type even if there are none.

    Django's `pk__in=[…]` goes through every value four times to make a placeholder of it. With hundreds of running
    answers this took a third of the server's CPU time.
    """
    values = list(keys)
    if connection.vendor == "sqlite":
        known = [value.hex if isinstance(value, UUID) else value for value in values]
        return RawSQL("SELECT value FROM json_each(%s)", [json.dumps(known)])
    return RawSQL(f"SELECT unnest(%s::{_KINDS[kind]}[])", [values])  # noqa: S611  a type of ours


LARGE = 1_000_000


class _Seen(threading.local):
    is_large = False


_seen = _Seen()


def watch_connection(*, connection: BaseDatabaseWrapper, **_: object) -> None:
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


def _note_large_values(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: object) -> object:
    if params and not _seen.is_large:
        _seen.is_large = any(map(_has_large, params)) if many else _has_large(params)
    return execute(sql, params, many, context)


def _has_large(values: Iterable[object]) -> bool:
    for value in values.values() if isinstance(values, dict) else values:
        kind = type(value)  # most values are of these types, and this runs for every value of every statement
        if kind is str or kind is bytes:
            if len(value) > LARGE:  # type: ignore[arg-type]
                return True
        elif kind is not int and value is not None and _size(value) > LARGE:
            return True
    return False


def _size(value: object) -> int:
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return len(value)
    wrapped = getattr(value, "obj", None)  # PostgreSQL's driver wraps bytes in an object of its own
    return len(wrapped) if isinstance(wrapped, (bytes, bytearray, memoryview)) else 0
