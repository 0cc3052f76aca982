"""Where the digester runs: in a process of its own, or in a thread where there is one core; one for each journal.

Which one that is, a lock in the journal's folder decides. It needs no database, and whoever dies lets it go. The web
process only looks after it: it starts one where nobody digests, and the child ends when its parent does, because it
reads its standard input to the end. It waits for the first call as soon as there is a key for the relay, because to
start takes longer than the second within which a call is to be seen; before that, nothing is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connections

from history.access import keys
from relay.digest.db_errors import OUTAGES

if TYPE_CHECKING:
    from relay.digest.digester import Digester

logger = logging.getLogger(__name__)

LOCK, NAME = "digester.lock", "name"
# Between two steps, unless more is waiting than one can read: what comes in the meantime shares the cost of a commit.
PAUSE = 0.1
# Where more waits than one step can read, it rests for this part of the time that a step took: whoever answers just now
# has the machine first, and what was said is in the journal anyway.
REST = 0.5
PAUSE_WHEN_AWAY = 1.0
LAST_SECONDS = 10.0
LOOK_SECONDS = 1.0
MOST_KEYS = 100


def folder() -> Path:
    return Path(settings.PARLEY_DATA_DIR) / "journal"


class DigestLease:
    """The right to digest a journal, as long as this is held."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._fd = -1

    def take(self) -> bool:
        if self._fd >= 0:
            return True
        fd = os.open(self.place / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def give_back(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def name_of(place: Path) -> str:
    """The journal's own name, made once: several machines may share a database."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(place / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(16))
    return (place / NAME).read_text().strip() or "unnamed"


def _new_digester(place: Path) -> Digester:
    # Only here: a web process that looks after one need not load what it is made of.
    from relay.digest.digester import Digester

    return Digester(place, name=name_of(place))


# In a process of its own: `python -m relay.digest`.


def run(ended: threading.Event) -> None:
    """Digest until told to end, then what is left, for a while. Nothing to do if somebody else digests."""
    turn = DigestLease(folder())
    if not turn.take():
        return
    digester = _new_digester(folder())
    while not ended.is_set():
        begun = time.monotonic()
        _, pause = _step(digester)
        ended.wait(pause or min(PAUSE, (time.monotonic() - begun) * REST))
    last = time.monotonic() + LAST_SECONDS
    while time.monotonic() < last and (_step(digester)[0] or not digester.is_idle):
        time.sleep(PAUSE / 2)


_trouble = {"told": ""}


def _step(digester: Digester) -> tuple[int, float]:
    """One step: how many records that were, and how long to wait before the next."""
    try:
        count = digester.step()
    except OUTAGES as error:
        if _trouble["told"] != str(error):
            logger.error("The relay's journal waits: the database does not take it (%s).", error)
        _trouble["told"] = str(error)
        connections.close_all()
        return 0, PAUSE_WHEN_AWAY
    if _trouble["told"]:
        _trouble["told"] = ""
        logger.info("The relay's journal is digested again.")
    return count, 0.0 if digester.has_more else PAUSE


# In the web process: a job of the background work.


class _Here:
    """What this process does about it."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.turn: DigestLease | None = None
        self.digester: Digester | None = None
        self.looked_at = 0.0


_here = _Here()


def look_after() -> None:
    """A job of every process that does background work, several times a second; mostly it finds nothing to do."""
    if is_thread():
        _digest_here()
    elif time.monotonic() - _here.looked_at >= LOOK_SECONDS:
        _here.looked_at = time.monotonic()
        _look_after_child()


def stop() -> None:
    """The end of this process: the child digests what is left and goes, or we do it ourselves."""
    if _here.child is not None and _here.child.stdin is not None:
        _here.child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _here.child.wait(LAST_SECONDS / 4)
        _here.child = None
    if _here.turn is not None and _here.digester is not None:
        with contextlib.suppress(*OUTAGES):
            _here.digester.step()
    if _here.turn is not None:
        _here.turn.give_back()
    _here.turn = _here.digester = None


def is_thread() -> bool:
    if settings.PARLEY_DIGESTER == "auto":
        return len(os.sched_getaffinity(0)) < 2
    return bool(settings.PARLEY_DIGESTER == "thread")


def _digest_here() -> None:
    place = folder()
    if _here.turn is None or _here.turn.place != place:
        if not place.is_dir() or not (turn := DigestLease(place)).take():
            return
        _here.turn, _here.digester = turn, _new_digester(place)
    if _here.digester is not None:
        while _here.digester.step() and _here.digester.has_more:
            pass


def _is_awaited() -> bool:
    """Whether there is a journal, or may be one soon: then its folder is made here."""
    place = folder()
    if not place.is_dir() and settings.CHAT_HISTORY_ENABLED and _has_relay_keys():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place.is_dir()


def _has_relay_keys() -> bool:
    return any("relay" in scopes for scopes in keys.list_keys().values_list("scopes", flat=True)[:MOST_KEYS])


def _look_after_child() -> None:
    if _here.child is not None and _here.child.poll() is None:
        return
    _here.child = None
    turn = DigestLease(folder())
    if not _is_awaited() or not turn.take():
        return
    turn.give_back()
    environment = {**os.environ, "PARLEY_DATA_DIR": str(settings.PARLEY_DATA_DIR)}
    _here.child = subprocess.Popen(
        [sys.executable, "-m", "relay.digest"],
        cwd=settings.BASE_DIR,
        env=environment,
        stdin=subprocess.PIPE,
    )
