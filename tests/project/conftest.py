"""Databases for the processes that tests start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.databases import create_empty_database, create_migrated_database


@pytest.fixture
def empty_database_url(tmp_path: Path, own_database: None) -> Iterator[str]:
    with create_empty_database(tmp_path) as url:
        yield url


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory, own_database: None) -> Iterator[str]:
    """One with its tables, for all tests that do not mind what others left in it."""
    with create_migrated_database(tmp_path_factory.mktemp("processes")) as url:
        yield url


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> dict[str, str]:
    """For a process: the database, and a data directory that is empty."""
    return {"DATABASE_URL": database_url, "PARLEY_DATA_DIR": str(tmp_path / "data")}
