"""The threads in which the relay asks the database, and an end of their connections."""

import threading

from django.db import connections

from relay.runtime.async_db import THREADS, _pool


def close_connections() -> None:
    """Let go of the database, which a test is about to drop."""
    together = threading.Barrier(THREADS)

    def close() -> None:
        together.wait(10)
        connections.close_all()

    for done in [_pool.submit(close) for _ in range(THREADS)]:
        done.result(10)
