"""Database access from the event loop: a pool of threads whose connections stay open between calls.

Django's own way, one thread for everything that is "thread sensitive", would let a page that is rendered hold up every
running answer, and a connection for each call would cost more than most calls.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from history.db.parameters import release_large_values
from history.db.transactions import is_database_away

logger = logging.getLogger(__name__)

THREADS = 4
THREAD_NAMES = "relay database"
# How long a thread waits for a locked row before it reports an outage, as SQLite's busy timeout does. Without it, four
# commands in one session that is locked (a rebuild, a removal) would hold up every conversation of the process.
LOCK_SECONDS = 20.0
FIRST_DELAY, LONGEST_DELAY = 0.1, 2.0

P = ParamSpec("P")
T = TypeVar("T")

_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix=THREAD_NAMES)


async def in_database(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(_connection()(work), *args, **kwargs))


async def in_database_after_outages(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Repeat during an outage until the database is back or the caller cancels. `work` must be safe to repeat.

    There is no time limit: what is to be stored is in memory anyway, and no new run can begin meanwhile.
    """
    write = partial(work, *args, **kwargs)
    return await _after_outages(write, write)


async def store_once(write: Callable[..., T]) -> T:
    """Write as soon as the database is back. `is_repeated`: an earlier attempt may have been committed unnoticed."""
    return await _after_outages(partial(write, is_repeated=False), partial(write, is_repeated=True))


async def _after_outages(first: Callable[[], T], again: Callable[[], T]) -> T:
    delay = FIRST_DELAY
    while True:
        try:
            result = await in_database(first if delay == FIRST_DELAY else again)
        except (DatabaseError, InterfaceError) as error:
            if not is_database_away(error):
                raise
            if delay == FIRST_DELAY:
                logger.warning("The database is not available (%s). Retrying until it is back.", type(error).__name__)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)
        else:
            if delay > FIRST_DELAY:
                logger.warning("The database is available again.")
            return result


def begin_in_database(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
    """Does not wait. `work` handles its own errors."""
    _pool.submit(partial(_connection()(work), *args, **kwargs))


@contextmanager
def _connection() -> Iterator[None]:
    connection.close_if_unusable_or_obsolete()
    try:
        yield
    except DatabaseError as error:
        if is_database_away(error) and not isinstance(error, OperationalError):
            # A server that is read-only since a failover raises InternalError; our callers know one class for outages.
            raise OperationalError(*error.args) from error.__cause__
        raise
    finally:
        connection.close_at = None  # these threads stay, and so may their connections
        release_large_values()


def _limit_locks(connection: BaseDatabaseWrapper, **_named: Any) -> None:
    if connection.vendor == "postgresql" and threading.current_thread().name.startswith(THREAD_NAMES):
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {LOCK_SECONDS * 1000:.0f}")


connection_created.connect(_limit_locks)
