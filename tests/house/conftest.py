"""A database of their own for the processes that tests start, of the same make as the one the tests run on."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from tests.house.processes import manage


@pytest.fixture(scope="session")
def empty_database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not settings.DATABASE_URL.startswith("postgres"):
        yield f"sqlite:///{tmp_path_factory.mktemp('database')}/parley.sqlite3"
        return
    name = f"parley_processes_{secrets.token_hex(4)}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        yield _with_name(name)
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _with_name(name: str) -> str:
    before, _, query = settings.DATABASE_URL.partition("?")
    address = before.rpartition("/")[0] + f"/{name}"
    return f"{address}?{query}" if query else address


@pytest.fixture(scope="session")
def database_url(empty_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with its tables."""
    folder = tmp_path_factory.mktemp("migrating")
    done = manage("migrate", "--verbosity", "0", DATABASE_URL=empty_database_url, PARLEY_DATA_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    return empty_database_url


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> dict[str, str]:
    """For a process: the database, and a data directory that is empty."""
    return {"DATABASE_URL": database_url, "PARLEY_DATA_DIR": str(tmp_path / "data")}
