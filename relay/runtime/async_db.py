"""Database access from the event loop: a pool of threads whose connections stay open between calls.

Django's own way, one thread for everything that is "thread sensitive", would let a page that is rendered hold up every
running answer, and a connection for each call would cost more than most calls.

Jobs wait in the order of the requests that they belong to (`Admission`), not in their own. A question takes several
jobs until the model is called. If those of a hundred questions took turns, the first one would be answered no sooner
than the last. A request that waits for something else (a budget, the end of an outage) has no job here and holds up
none. Nothing has to be released.
"""

import asyncio
import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
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

Admission = int  # the place of a request among all of this process; jobs of the lowest one are done first
URGENT: Admission = 0

_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix=THREAD_NAMES)
_numbers = itertools.count(1)
_admission: ContextVar[Admission | None] = ContextVar("admission", default=None)
_waiting: list[tuple[Admission, int, Future[Any], Callable[[], Any]]] = []
_lock = threading.Lock()


@contextmanager
def admitted(admission: Admission | None = None) -> Iterator[None]:
    """Everything in this block, and in tasks that it starts, belongs to one request, by default to a new one."""
    token = _admission.set(next(_numbers) if admission is None else admission)
    try:
        yield
    finally:
        _admission.reset(token)


def current_admission() -> Admission | None:
    return _admission.get()


def end_admission() -> None:
    """What this task does from now on waits behind the requests that have come meanwhile."""
    _admission.set(None)


async def in_database(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.wrap_future(_submit(partial(_connection()(work), *args, **kwargs)))


def _submit(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    number, admission = next(_numbers), _admission.get()
    with _lock:
        heapq.heappush(_waiting, (number if admission is None else admission, number, future, work))
    _pool.submit(_run_first)
    return future


def _run_first() -> None:
    with _lock:
        _, _, future, work = heapq.heappop(_waiting)
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
        future.set_exception(error)


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
    _submit(partial(_connection()(work), *args, **kwargs))


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
