"""`manage.py backup [PATH]`: an online copy of the SQLite database, named only when it is complete and checked."""

import json
import os
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from project.server.readiness import check_database

PAGES = 2_000  # pages that are copied at a time: between two steps writers get their turn


class Command(BaseCommand):
    help = "Copy the SQLite database while it is in use, check the copy and print its path."
    # `serve` runs the system checks: they import every page, which takes longer than a small backup.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path", nargs="?", type=Path, help="path of the copy; default: a file named by the time, in data/backups"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if connection.vendor != "sqlite":
            raise CommandError(f"Use the backup tool of this database. Run: {pg_dump_command()}")
        check_database()
        default = Path(settings.PARLEY_DATA_DIR, "backups", f"parley-{timezone.now():%Y%m%d-%H%M%S}.sqlite3")
        target = (options["path"] or default).absolute()
        try:
            copy_sqlite(Path(connection.get_connection_params()["database"]), target)
        except (BackupError, OSError, sqlite3.Error) as error:
            raise CommandError(f"No backup was made. {error}") from error
        size = target.stat().st_size
        text = json.dumps({"path": str(target), "bytes": size}) if options["json"] else f"{target} ({size:,} bytes)"
        self.stdout.write(text)


def pg_dump_command() -> str:
    """The command line without the password: pg_dump asks for it, or reads PGPASSWORD or ~/.pgpass."""
    to = connection.settings_dict
    # The folder of a socket is an option of the URL: postgres://user@/name?host=/run/postgresql
    options = {"host": to["HOST"] or to["OPTIONS"].get("host"), "port": to["PORT"], "username": to["USER"]}
    arguments = [f"--{name}={value}" for name, value in options.items() if value]
    return shlex.join(["pg_dump", "--format=custom", *arguments, "--file=parley.dump", str(to["NAME"])])


class BackupError(Exception):
    """The copy could not be made. The text says why, and no file is left."""


def copy_sqlite(source: Path, target: Path) -> None:
    if target.exists():
        raise BackupError(f"{target} already exists. Choose another name.")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # Created first with its mode: SQLite would make it readable for all users.
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        copy_pages(source, draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)


def copy_pages(source: Path, draft: Path) -> None:
    read_only = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True, timeout=20)) as live, closing(sqlite3.connect(draft)) as copy:
        # In one read transaction writers continue, and the copy does not start again at each of their writes.
        live.execute("BEGIN")
        live.execute("SELECT 1 FROM sqlite_master").fetchone()
        live.backup(copy, pages=PAGES)
        # One file, without -wal and -shm beside it.
        copy.execute("PRAGMA journal_mode=DELETE")
    # Through a connection of its own, which reads what was written.
    with closing(sqlite3.connect(draft)) as copy:
        verdict = copy.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        raise BackupError(f"The copy is damaged and was deleted: {verdict}")
