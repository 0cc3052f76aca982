"""What there is of the load in the history, asked of the database itself."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Collection
from typing import Any
from uuid import UUID

import psycopg

SETTLED_SECONDS = 300.0


class History:
    """`url` as in DATABASE_URL: a file of SQLite, or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.file = url.removeprefix("sqlite:///") if url.startswith("sqlite") else ""
        self.url = url
        self._own = threading.local()

    def stored(self) -> tuple[int, int]:
        """Calls that have ended, and answers."""
        query = "SELECT count(*), count(DISTINCT message_id) FROM history_exchange WHERE ended_at IS NOT NULL"
        [(stored, answered)] = self._ask(query)
        return stored, answered

    def ended(self, exchanges: Collection[str]) -> set[str]:
        """Which of these are there, with their end."""
        names = ",".join(f"'{UUID(name).hex}'" for name in exchanges)
        found = self._ask(f"SELECT id FROM history_exchange WHERE ended_at IS NOT NULL AND id IN ({names})")
        return {str(UUID(str(row[0]))) for row in found}

    def size(self) -> int:
        """All of it in bytes, indexes and search included."""
        if self.file:
            [(pages,)], [(size,)] = self._ask("PRAGMA page_count"), self._ask("PRAGMA page_size")
            [(free,)] = self._ask("PRAGMA freelist_count")
            return int((pages - free) * size)
        self._ask("VACUUM")
        return int(self._ask("SELECT pg_database_size(current_database())")[0][0])

    def settle(self, carried: int) -> None:
        """Wait until everything that was carried is there."""
        end = time.monotonic() + SETTLED_SECONDS
        while self.stored()[0] < carried and time.monotonic() < end:
            time.sleep(0.3)

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        if self.file:
            with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=30) as connection:
                return connection.execute(query).fetchall()
        cursor = self._connection().execute(query.encode())
        return cursor.fetchall() if cursor.description else []

    def _connection(self) -> psycopg.Connection[Any]:
        """One for each thread: a new one for each look would be a process of the server's fifty times a second."""
        if not hasattr(self._own, "connection"):
            self._own.connection = psycopg.connect(self.url, autocommit=True)
        connection: psycopg.Connection[Any] = self._own.connection
        return connection
