"""The digester's process: one per journal, in a process of its own, or in a thread where there is one core.

A lock in the journal's folder decides which process digests. It needs no database, and a process that dies releases it.
The web process starts a child that ends with it, as soon as there is a key for the relay: the start takes longer than
the second within which a call must be visible.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connections

from history.access import keys
from relay.digest.positions import OUTAGES
from relay.gateway.journal_settings import journal_folder

if TYPE_CHECKING:
    from relay.digest.digester import Digester

logger = logging.getLogger(__name__)

LOCK, NAME = "digester.lock", "name"
PAUSE = 0.1  # between two steps: records that come in the meantime share the cost of a commit
# With a backlog, the pause is this part of the time that a step took: clients that wait for an answer come first.
REST = 0.5
PAUSE_WHEN_AWAY = 1.0
LAST_SECONDS = 10.0
LOOK_SECONDS = 1.0
MOST_KEYS = 100


def _take_lease(journal: Path) -> int | None:
    """The lock as an open file: closing it gives it back. None if another process has it."""
    fd = os.open(journal / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def journal_name(journal: Path) -> str:
    """The journal's own name, created once: several machines may share a database."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(journal / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(16))
    return (journal / NAME).read_text().strip() or "unnamed"


def _new_digester(journal: Path) -> "Digester":
    # Imported here: a web process that only starts the child need not load the digester.
    from relay.digest.digester import Digester

    return Digester(journal, name=journal_name(journal))


# In a process of its own: `python -m relay.digest`.


def run_digester(ended: threading.Event) -> None:
    """Digest until told to end, then what is left, for a while. Does nothing if another process digests."""
    if _take_lease(journal_folder()) is None:
        return
    digester = _new_digester(journal_folder())
    while not ended.is_set():
        started = time.monotonic()
        _, pause = _step(digester)
        ended.wait(pause or min(PAUSE, (time.monotonic() - started) * REST))
    last = time.monotonic() + LAST_SECONDS
    while time.monotonic() < last and (_step(digester)[0] or not digester.is_idle):
        time.sleep(PAUSE / 2)


_last_error = {"text": ""}


def _step(digester: "Digester") -> tuple[int, float]:
    """One step: the number of records, and how long to wait before the next. The same outage is logged once."""
    try:
        count = digester.step()
    except OUTAGES as error:
        if _last_error["text"] != str(error):
            logger.error("The relay's journal waits: the database is not available (%s).", error)
        _last_error["text"] = str(error)
        connections.close_all()
        return 0, PAUSE_WHEN_AWAY
    if _last_error["text"]:
        _last_error["text"] = ""
        logger.info("The relay's journal is digested again.")
    return count, 0.0 if digester.has_more else PAUSE


# In the web process: a job of the background work.


@dataclass(slots=True)
class _OwnDigester:
    """The digester that this process has started: a child or, in a thread, its own."""

    child: subprocess.Popen[bytes] | None = None
    lease: int | None = None
    digester: "Digester | None" = None
    looked_at: float = 0.0


_own = _OwnDigester()


def keep_running() -> None:
    """A job of every process that does background work, several times a second; mostly there is nothing to do."""
    if is_thread():
        _digest_in_thread()
    elif time.monotonic() - _own.looked_at >= LOOK_SECONDS:
        _own.looked_at = time.monotonic()
        _keep_child_running()


def stop() -> None:
    """At the end of this process, digest what is left: in the child, or here."""
    if _own.child is not None and _own.child.stdin is not None:
        _own.child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _own.child.wait(LAST_SECONDS / 4)
        _own.child = None
    if _own.lease is not None and _own.digester is not None:
        with contextlib.suppress(*OUTAGES):
            _own.digester.step()
        os.close(_own.lease)
    _own.lease = _own.digester = None


def is_thread() -> bool:
    if settings.PARLEY_DIGESTER == "auto":
        return len(os.sched_getaffinity(0)) < 2
    return bool(settings.PARLEY_DIGESTER == "thread")


def _digest_in_thread() -> None:
    journal = journal_folder()
    if _own.digester is None or _own.digester.folder != journal:
        if not journal.is_dir() or (lease := _take_lease(journal)) is None:
            return
        _own.lease, _own.digester = lease, _new_digester(journal)
    while _own.digester.step() and _own.digester.has_more:
        pass


def _has_journal() -> bool:
    """Whether there is a journal, or may be one soon: then its folder is created here."""
    journal = journal_folder()
    if not journal.is_dir() and settings.CHAT_HISTORY_ENABLED:
        scopes = keys.list_keys().values_list("scopes", flat=True)[:MOST_KEYS]
        if any("relay" in of_key for of_key in scopes):
            journal.mkdir(mode=0o700, parents=True, exist_ok=True)
    return journal.is_dir()


def _keep_child_running() -> None:
    if _own.child is not None and _own.child.poll() is None:
        return
    _own.child = None
    if not _has_journal() or (lease := _take_lease(journal_folder())) is None:
        return
    os.close(lease)
    environment = {**os.environ, "PARLEY_DATA_DIR": str(settings.PARLEY_DATA_DIR)}
    _own.child = subprocess.Popen(
        [sys.executable, "-m", "relay.digest"], cwd=settings.BASE_DIR, env=environment, stdin=subprocess.PIPE
    )
