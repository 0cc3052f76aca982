"""`history import`: files, folders and archives of other products, and our own exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history import importing
from history.access.keys import NotAllowedError, first_staff_user
from history.formats.note_texts import filled_in, level_word, note_words, worded
from history.importing import ImportItem, ImportOutcome, ImportReport
from history.management.history_commands.arguments import Options, user_named
from history.management.history_commands.printing import print_json_line, print_line, progress_bar
from history.management.output import Stream, print_table

HELP = "Import conversations of other products, and exports of Parley: files, folders, archives."

STYLES = {
    ImportOutcome.IMPORTED: "green",
    ImportOutcome.GROWN: "green",
    ImportOutcome.THERE: "dim",
    ImportOutcome.REFUSED: "bold red",
    ImportOutcome.NOTED: "yellow",
    ImportOutcome.IGNORED: "dim",
}
# Printed one by one only with more verbosity.
QUIET = frozenset({ImportOutcome.THERE, ImportOutcome.IGNORED})


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="files, folders, zip, gzip or zstd archives"
    )
    parser.add_argument(
        "--owner",
        metavar="USER",
        help="whose they become; default: the first of the staff, and for exports of Parley whoever owned them",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be imported, and do nothing")


def run(options: Options, *, out: Stream, err: Stream) -> None:
    for path in options["paths"]:
        if not path.exists():
            raise CommandError(_("There is nothing at %(path)s.") % {"path": path}, returncode=2)
    owner = user_named(options["owner"]) if options["owner"] else _first_of_the_staff()
    with progress_bar(_("Importing"), total=sum(map(_size, options["paths"]))) as advance:
        report = importing.run(
            owner,
            importing.files_at(options["paths"]),
            on_item=lambda item: _print_item(item, options, out),
            on_bytes=advance,
            restore_owners=not options["owner"],
            dry_run=options["dry_run"],
        )
    _print_report(report, options, out=out, err=err)
    if report[ImportOutcome.REFUSED]:
        raise CommandError(_("Refused: %(count)s. The reasons are above.") % {"count": report[ImportOutcome.REFUSED]})


def _size(path: Path) -> int:
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
    )


def _first_of_the_staff() -> AbstractUser:
    try:
        return first_staff_user()
    except NotAllowedError:
        raise CommandError(_("There is nobody to own it: name somebody with --owner."), returncode=2) from None


def _print_item(item: ImportItem, options: Options, out: Stream) -> None:
    if options["json"]:
        print_json_line(out, item.as_json())
        return
    if item.outcome in QUIET and options["verbosity"] < 2:
        return
    name = filled_in(item.title) or item.file
    place = [f"  {item.session}"] if item.session else []
    print_line(out, (item.outcome.value, STYLES[item.outcome]), f"  {name}", *place)
    if item.why:
        print_line(out, worded(item.why), indent=4)
    for note in item.notes:
        print_line(out, (level_word(note.level), "dim"), f"  {note_words(note)}", indent=4)


def _print_report(report: ImportReport, options: Options, *, out: Stream, err: Stream) -> None:
    if options["json"]:
        print_json_line(out, {"dry_run": options["dry_run"], "report": report.as_json()})
        return
    rows: list[tuple[Any, Any]] = [
        (_("imported"), report[ImportOutcome.IMPORTED]),
        (_("grown"), report[ImportOutcome.GROWN]),
        (_("already there"), report[ImportOutcome.THERE]),
        (_("repaired among these"), report.repaired),
        (_("refused"), report[ImportOutcome.REFUSED]),
        (_("files without a conversation"), report[ImportOutcome.IGNORED]),
        (_("entries stored"), report.entries),
    ]
    print_table(out, (_("conversations"), _("count")), [(words, f"{count:,}") for words, count in rows])
    if options["dry_run"]:
        print_line(err, _("Nothing was imported: leave out --dry-run to do it."))
