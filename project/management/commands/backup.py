"""`manage.py backup [PATH]`: a copy of the database while the server goes on writing."""

import json
import shlex
import sqlite3
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from project.background.backups import BackupError, copy_sqlite
from project.server.preflight import check_database


class Command(BaseCommand):
    help = "Copy the SQLite database while it is in use, check the copy, and print where it is."
    # Whoever waits for one answer does not wait for every page to be imported and checked first: `serve` does that.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="?", type=Path, help="default: a file named by the time, in data/backups")
        parser.add_argument("--json", action="store_true", help="print an object for programs")

    def handle(self, *args: Any, **options: Any) -> None:
        if connection.vendor != "sqlite":
            raise CommandError(f"This database is backed up by its own tool. Run: {pg_dump_command()}")
        check_database()
        target = (options["path"] or default_path()).absolute()
        try:
            copy_sqlite(Path(connection.get_connection_params()["database"]), target)
        except (BackupError, OSError, sqlite3.Error) as error:
            raise CommandError(f"No backup was made. {error}") from error
        size = target.stat().st_size
        text = json.dumps({"path": str(target), "bytes": size}) if options["json"] else f"{target} ({size:,} bytes)"
        self.stdout.write(text)


def default_path() -> Path:
    return Path(settings.PARLEY_DATA_DIR, "backups", f"parley-{timezone.now():%Y%m%d-%H%M%S}.sqlite3")


def pg_dump_command() -> str:
    """The password stays out of it: pg_dump asks for it, or finds it in PGPASSWORD or ~/.pgpass."""
    to = connection.settings_dict
    # A socket's folder is given as an option of the address: postgres://user@/name?host=/run/postgresql
    options = {"host": to["HOST"] or to["OPTIONS"].get("host"), "port": to["PORT"], "username": to["USER"]}
    given = [f"--{name}={value}" for name, value in options.items() if value]
    return shlex.join(["pg_dump", "--format=custom", *given, "--file=parley.dump", str(to["NAME"])])
