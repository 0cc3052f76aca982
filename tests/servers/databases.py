"""The databases of tests, and those of their own for the processes that tests start, of the same make.

To make the tables takes seconds, so a run of tests makes them once, whichever of its workers comes first; every
further database is a copy.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.conf import settings
from django.db import connection, connections, transaction

from relay.runtime.async_db import THREADS, _pool
from tests.servers.processes import run_manage

# Where the workers of one run find what one of them has made.
FOLDER = "TESTS_OF_ONE_RUN"
WRITTEN_BY_MIGRATIONS = {"django_content_type", "auth_permission"}


@contextmanager
def shared_folder() -> Iterator[None]:
    """For the process that starts the workers; they inherit its environment."""
    if FOLDER in os.environ:  # a test has started this process
        yield
        return
    with tempfile.TemporaryDirectory(prefix="parley-tables-", ignore_cleanup_errors=True) as folder:
        os.environ[FOLDER] = folder
        yield


@contextmanager
def create_empty_database(folder: Path) -> Iterator[str]:
    """Its URL."""
    with _new_database(folder / "parley.sqlite3") as url:
        yield url


@contextmanager
def create_migrated_database(folder: Path) -> Iterator[str]:
    """The URL of one with its tables."""
    with _new_database(folder / "parley.sqlite3", template=_on_server()) as url:
        if not _on_server():
            copy_migrated_file(folder / "parley.sqlite3")
        yield url


def copy_migrated_file(file: Path) -> str:
    """The URL of a new SQLite file with its tables, also when the tests run on PostgreSQL."""
    shutil.copyfile(file_with_tables(), file)
    return f"sqlite:///{file}"


@contextmanager
def _new_database(file: Path, *, template: bool = False) -> Iterator[str]:
    if not _on_server():
        yield f"sqlite:///{file}"
        return
    like = f' TEMPLATE "{database_with_tables()}"' if template else ""
    name = f"parley_processes_{secrets.token_hex(4)}"
    _execute(f'CREATE DATABASE "{name}"{like}')
    yield _with_name(settings.DATABASE_URL, name)
    _execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _execute(statement: str) -> None:
    """By a connection of its own each time: a fault may stop the server in between."""
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(statement.encode())


def _on_server() -> bool:
    return bool(settings.DATABASE_URL.startswith("postgres"))


def file_with_tables() -> Path:
    file = _folder() / "tables.sqlite3"
    with _made_once(file) as made:
        if not made:
            _make_tables(f"sqlite:///{file}")
    return file


def database_with_tables() -> str:
    """Its name on the server."""
    name = f"parley_tables_{_folder().name.rpartition('-')[2].lower()}"
    with _made_once(_folder() / name) as made:
        if not made:
            _execute(f'CREATE DATABASE "{name}"')
            _make_tables(_with_name(settings.DATABASE_URL, name))
    return name


def clear_tables() -> None:
    """Those of the tests' own database that have rows: to truncate all takes PostgreSQL ten times as long."""
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    tables = [connection.ops.quote_name(name) for name in names if name not in WRITTEN_BY_MIGRATIONS]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in tables))
        for (table,) in cursor.fetchall():
            cursor.execute(f"DELETE FROM {table}")


def _folder() -> Path:
    return Path(os.environ[FOLDER])


@contextmanager
def _made_once(what: Path) -> Iterator[bool]:
    """Whether it has been made; if not, other processes wait meanwhile."""
    done = what.with_suffix(".done")
    with what.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield done.exists()
        done.touch()


def _make_tables(url: str) -> None:
    done = run_manage("migrate", "--verbosity", "0", DATABASE_URL=url, PARLEY_DATA_DIR=str(_folder()))
    assert done.returncode == 0, done.stderr


def _with_name(url: str, name: str) -> str:
    address, question, query = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{question}{query}"


_ROWS_READ = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables"


def measure_db_work(do: Callable[[], object]) -> int:
    """On SQLite the steps of its machine, on PostgreSQL the rows that were read. Only inside one transaction."""
    connection.ensure_connection()
    return _steps(do) if connection.vendor == "sqlite" else _rows_read(do)


def analyze_tables() -> None:
    """Let the database count what is there, as it does by itself after a while.

    On PostgreSQL, plan as for a large table: one of some hundred rows may also be read from end to end although it has
    indexes.
    """
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "postgresql":
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


def close_connections() -> None:
    """Let go of the database, which a test is about to drop."""
    together = threading.Barrier(THREADS)

    def close() -> None:
        together.wait(10)
        connections.close_all()

    for done in [_pool.submit(close) for _ in range(THREADS)]:
        done.result(10)
