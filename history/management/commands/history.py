"""`manage.py history`: list, read, search, export, import, delete and verify sessions from a shell.

Sub-commands: `history.management.cli`. Exit codes: 0 done, 1 not found, refused or damaged, 2 wrong usage.
"""

import os
import sys
from types import ModuleType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils.translation import gettext as _

from history.errors import HistoryError
from history.management.cli import delete, exporting, importing, lint, listing, person, purge, search, show, verify

ACTIONS: dict[str, ModuleType] = {
    "list": listing, "show": show, "search": search, "export": exporting, "import": importing,
    "delete": delete, "purge": purge, "verify": verify, "lint": lint, "person": person,
}  # fmt: skip


class Command(BaseCommand):
    help = "List, read, search, export, import, delete and verify recorded sessions."
    # Skip the system checks, which import every page: `serve` runs them.
    requires_system_checks: list[str] = ["redaction"]

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar=" | ".join(ACTIONS))
        for name, module in ACTIONS.items():
            own = actions.add_parser(name, help=module.HELP, description=module.HELP)
            own.add_argument("--json", action="store_true", help="print JSON")
            module.add_arguments(own)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            ACTIONS[options["action"]].run(options, out=self.stdout, err=self.stderr)
            self.stdout.flush()
        except HistoryError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            values = {"words": str(error).splitlines()[0]}
            raise CommandError(_("The database is not available (%(words)s).") % values) from error
        except KeyboardInterrupt:
            raise CommandError(_("Stopped."), returncode=130) from None
        except BrokenPipeError:
            # The reader of the pipe (`| head`) closed it. Discard what is buffered, or Python reports an error at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
