"""Databases of their own for the processes that tests start, of the same make as the one the tests run on."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from tests.house.processes import manage


@contextmanager
def new_database(folder: Path) -> Iterator[str]:
    if not settings.DATABASE_URL.startswith("postgres"):
        yield f"sqlite:///{folder}/parley.sqlite3"
        return
    name = f"parley_processes_{secrets.token_hex(4)}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        yield with_name(settings.DATABASE_URL, name)
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def with_name(url: str, name: str) -> str:
    address, question, query = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{question}{query}"


@pytest.fixture
def empty_database_url(tmp_path: Path) -> Iterator[str]:
    with new_database(tmp_path) as url:
        yield url


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One with its tables, for all tests that do not mind what others left in it."""
    folder = tmp_path_factory.mktemp("processes")
    with new_database(folder) as url:
        done = manage("migrate", "--verbosity", "0", DATABASE_URL=url, PARLEY_DATA_DIR=str(folder))
        assert done.returncode == 0, done.stderr
        yield url


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> dict[str, str]:
    """For a process: the database, and a data directory that is empty."""
    return {"DATABASE_URL": database_url, "PARLEY_DATA_DIR": str(tmp_path / "data")}
