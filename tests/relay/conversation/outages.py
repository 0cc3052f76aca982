"""A database that is really away, in the middle of a test: PostgreSQL refuses, SQLite is locked or full."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from relay.runtime import async_db

KINDS = {"sqlite": ("locked", "full"), "postgresql": ("stopped", "stopped again")}


@asynccontextmanager
async def database_away(kind: int) -> AsyncIterator[str]:
    """`kind` 0 or 1: each database fails in two ways, as far as it can."""
    name = KINDS[connection.vendor][kind]
    begin, end = {"locked": (_lock, _unlock), "full": (_fill, _empty)}.get(name, (_refuse, _accept))
    await asyncio.to_thread(begin)
    try:
        yield name
    finally:
        await asyncio.to_thread(end)


def on_every_thread(statement: str) -> list[Any]:
    """Its result in each connection of the pool."""
    together = threading.Barrier(async_db.THREADS)

    def say() -> Any:
        together.wait(10)
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()

    # As the pool itself does it: a connection that is made here stays.
    asked = [async_db._pool.submit(async_db._connection()(say)) for _ in range(async_db.THREADS)]
    return [done.result(10) for done in asked]


_locks: list[sqlite3.Connection] = []


def _lock() -> None:
    on_every_thread("PRAGMA busy_timeout = 50")
    name = str(connection.settings_dict["NAME"])
    other = sqlite3.connect(name, isolation_level=None, check_same_thread=False, uri=name.startswith("file:"))
    other.execute("BEGIN IMMEDIATE")
    _locks.append(other)


def _unlock() -> None:
    other = _locks.pop()
    other.execute("ROLLBACK")
    other.close()
    on_every_thread("PRAGMA busy_timeout = 20000")


def _fill() -> None:
    """No page more than there are now, and none of them is free."""
    async_db._pool.submit(_vacuum).result(30)
    on_every_thread("PRAGMA max_page_count = 1")


def _vacuum() -> None:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")


def _empty() -> None:
    on_every_thread("PRAGMA max_page_count = 1000000")


def _refuse() -> None:
    """The connections of the pool end, and no new one is made. That of the test itself stays."""
    pids = [pid for (pid,) in on_every_thread("SELECT pg_backend_pid()")]
    _on_server(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" ALLOW_CONNECTIONS false')
    for pid in pids:
        _on_server(f"SELECT pg_terminate_backend({pid:d})")


def _accept() -> None:
    _on_server(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" ALLOW_CONNECTIONS true')


def _on_server(statement: str) -> None:
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(statement.encode())
