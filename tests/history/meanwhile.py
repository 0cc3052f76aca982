"""What others do while we are at it: between two of our statements, or over a connection of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections


@contextmanager
def before_statements(beginning: str, do: Callable[[int], object]) -> Iterator[list[int]]:
    """`do(0)`, `do(1)`, … before every statement of ours that begins so; gives what was done so far."""
    done: list[int] = []
    is_busy = False

    def between(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal is_busy
        if sql.startswith(beginning) and not is_busy:
            is_busy = True
            do(len(done))
            done.append(len(done))
            is_busy = False
        return execute(sql, *rest)

    with connection.execute_wrapper(between):
        yield done


def over_another_connection(do: Callable[[], object]) -> None:
    """Somebody else does it, and must not have to wait for us."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - raised below, where the test sees it
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "somebody else is kept waiting"
    if failed:
        raise failed[0]
