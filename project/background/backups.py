"""An online copy of the SQLite database: whole, checked, and there under its name only when it is both."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

# So many pages at a time: between two steps writers get their turn.
PAGES = 2_000


class BackupError(Exception):
    """The copy could not be made; the text says why. Nothing is left behind."""


def copy_sqlite(source: Path, target: Path) -> None:
    if target.exists():
        raise BackupError(f"{target} exists already. Choose another name: a backup never overwrites.")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # Made first with its mode: SQLite would make it readable for everybody.
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        copy_pages(source, draft)
        check_copy(draft)
        flush_to_disk(draft)
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)


def copy_pages(source: Path, draft: Path) -> None:
    read_only = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True, timeout=20)) as live, closing(sqlite3.connect(draft)) as copy:
        # Inside one read transaction: writers go on, and the copy does not start anew at each of their writes.
        live.execute("BEGIN")
        live.execute("SELECT 1 FROM sqlite_master").fetchone()
        live.backup(copy, pages=PAGES)
        # A single file, without the -wal and -shm that the mode of the original would ask for.
        copy.execute("PRAGMA journal_mode=DELETE")


def check_copy(draft: Path) -> None:
    with closing(sqlite3.connect(draft)) as copy:
        verdict = copy.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        raise BackupError(f"The copy is damaged and was thrown away: {verdict}")


def flush_to_disk(draft: Path) -> None:
    descriptor = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
