"""How hard a database works for something: a number to compare, where a test must not measure time."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection

_ROWS_READ = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables"


def effort_of(do: Callable[[], object]) -> int:
    """On SQLite the steps of its machine, on PostgreSQL the rows that were read. Only inside one transaction."""
    connection.ensure_connection()
    return _steps(do) if connection.vendor == "sqlite" else _rows_read(do)


def know_the_tables() -> None:
    """Let PostgreSQL count what is there, as it does by itself when nobody is in a hurry.

    And plan as for a large table: one of some hundred rows may also be read from end to end, whatever its indexes.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
            cursor.execute("SET LOCAL enable_seqscan = off")


def _steps(do: Callable[[], object]) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.connection.set_progress_handler(count, 1)
    try:
        do()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return steps


def _rows_read(do: Callable[[], object]) -> int:
    before = _count_rows()
    do()
    return _count_rows() - before


def _count_rows() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_ROWS_READ)
        return int(cursor.fetchone()[0])
