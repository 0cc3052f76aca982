"""Databases of their own for the processes that tests start, of the same make as the one the tests run on.

To make the tables takes seconds, so a run of tests makes them once; every further database is a copy.
"""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
from django.conf import settings

from tests.house.processes import manage


@contextmanager
def empty_database(folder: Path) -> Iterator[str]:
    """Its URL."""
    with _new_database(folder / "parley.sqlite3") as url:
        yield url


@contextmanager
def ready_database(folder: Path) -> Iterator[str]:
    """The URL of one with its tables."""
    with _new_database(folder / "parley.sqlite3", template=_on_server()) as url:
        if not _on_server():
            ready_file(folder / "parley.sqlite3")
        yield url


def ready_file(file: Path) -> str:
    """The URL of a new SQLite file with its tables, whatever the tests run on."""
    shutil.copyfile(_file_with_tables(), file)
    return f"sqlite:///{file}"


@contextmanager
def _new_database(file: Path, *, template: bool = False) -> Iterator[str]:
    if not _on_server():
        yield f"sqlite:///{file}"
        return
    like = f' TEMPLATE "{_database_with_tables()}"' if template else ""
    name = f"parley_processes_{secrets.token_hex(4)}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"{like}')
        yield _with_name(settings.DATABASE_URL, name)
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _on_server() -> bool:
    return bool(settings.DATABASE_URL.startswith("postgres"))


@cache
def _file_with_tables() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="parley-tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _make_tables(f"sqlite:///{folder}/tables.sqlite3", folder)
    return folder / "tables.sqlite3"


@cache
def _database_with_tables() -> str:
    name = f"parley_tables_{secrets.token_hex(4)}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    with tempfile.TemporaryDirectory() as folder:
        _make_tables(_with_name(settings.DATABASE_URL, name), Path(folder))
    return name


def _make_tables(url: str, folder: Path) -> None:
    done = manage("migrate", "--verbosity", "0", DATABASE_URL=url, PARLEY_DATA_DIR=str(folder))
    assert done.returncode == 0, done.stderr


def _with_name(url: str, name: str) -> str:
    address, question, query = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{question}{query}"
