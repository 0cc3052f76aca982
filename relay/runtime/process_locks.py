"""Lock files of processes, by which others see which processes of this machine are gone.

A run names its process. A process holds the lock of its file in the data directory as long as it lives, so no waiting
and no process ids are needed, which containers reuse. Only files of this machine are checked: the same boot of the
kernel, or the same host name after a reboot. Runs of other machines end after a time without a heartbeat.
"""

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from django.conf import settings

logger = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessFile:
    """A file in a folder of the data directory, locked while this process lives. After a fork it is the parent's."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path: Path | None = None
        self.fd = -1
        self._pid = 0

    @property
    def folder(self) -> Path:
        return Path(settings.PARLEY_DATA_DIR) / self._folder

    @property
    def path(self) -> Path | None:
        return self._path if self._pid == os.getpid() else None

    def begin(self, content: Callable[[], bytes] = bytes) -> Path:
        """Locked before it has its name: a file without a lock is that of a dead process."""
        folder = self.folder
        if self.path is not None and self.path.parent == folder:
            return self.path
        self.end()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / uuid4().hex
        draft = path.with_name(f".{path.name}")
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, content())
        draft.rename(path)
        self._path, self.fd, self._pid = path, fd, os.getpid()
        return path

    def end(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            os.close(self.fd)
        self._path, self.fd, self._pid = None, -1, 0

    def others(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("[!.]*") if path != self.path)


own_file = ProcessFile("run-owners")
_lock = threading.Lock()


def name_here() -> str:
    """The name of this process. Empty if no file can be written: then its runs end by timeout."""
    with _lock:
        try:
            return own_file.begin(_this_host).name
        except OSError as error:
            logger.warning("Runs cannot be marked as those of this process: %s", error)
            return ""


def forget() -> None:
    with _lock:
        own_file.end()


def count_living() -> int:
    """The number of running processes of this machine, this one included."""
    name_here()
    return 1 + sum(1 for path in own_file.others() if _is_held(path))


@contextmanager
def dead_processes() -> Iterator[list[str]]:
    """Names of processes of this machine that are gone. Their files are removed afterwards.

    Their locks are held meanwhile, so that one process ends their runs; after an error the next one tries again.
    """
    with contextlib.ExitStack() as held:
        paths = [path for path in own_file.others() if _take(path, held)]
        yield [path.name for path in paths]
        for path in paths:
            path.unlink(missing_ok=True)


def _this_host() -> bytes:
    return json.dumps({"host": socket.gethostname(), "boot": _boot_id()}).encode()


def _take(path: Path, held: contextlib.ExitStack) -> bool:
    """Lock the file, if it is of this machine and no process holds it."""
    try:
        file = held.enter_context(path.open("rb"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = json.loads(file.read())
    except (OSError, ValueError):
        return False
    boot = _boot_id()
    return bool(boot and owner.get("boot") == boot) or owner.get("host") == socket.gethostname()


def _is_held(path: Path) -> bool:
    """With a shared lock, so that two processes that check at once do not see each other as its owner."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
