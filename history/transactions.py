"""The one way in which history is written: a transaction, and on SQLite a queue in front of it.

SQLite has one writer at a time and lets the others poll for their turn, which is slow and unfair. Threads of one
process therefore wait for a lock of ours first; between processes SQLite's own busy timeout decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

_turn = threading.Lock()


@contextmanager
def writing() -> Iterator[None]:
    """A transaction. Inside the caller's own one it is part of that, and durable when that commits."""
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with _turn, transaction.atomic():
        yield
