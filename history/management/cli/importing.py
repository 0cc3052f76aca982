"""`history import`: files, folders and archives of other products, and exports of Parley."""

from pathlib import Path

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history import importing
from history.access.keys import NotAllowedError, first_staff_user
from history.formats.reports import level_label, note_text, translate_if_lazy, translate_sentence
from history.importing import ImportItem, ImportOutcome, ImportReport
from history.management.cli.arguments import Options, user_named
from history.management.output import Stream, print_counts, print_json_line, print_line, progress_bar

HELP = "Import conversations of other products and exports of Parley."

QUIET = (ImportOutcome.THERE, ImportOutcome.IGNORED)  # printed one by one only with more verbosity
STYLES = {
    **dict.fromkeys((ImportOutcome.IMPORTED, ImportOutcome.GROWN), "green"),
    **dict.fromkeys(QUIET, "dim"),
    ImportOutcome.REFUSED: "bold red",
    ImportOutcome.NOTED: "yellow",
}


def add_arguments(parser: CommandParser) -> None:
    kinds = "files, folders, or ZIP, gzip and zstd archives"
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=kinds)
    owner = "owner of the sessions; default: the first staff user, or the original owner for exports of Parley"
    parser.add_argument("--owner", metavar="USER", help=owner)
    parser.add_argument("--dry-run", action="store_true", help="show what would be imported, without importing")


def run(options: Options, *, out: Stream, err: Stream) -> None:
    for path in options["paths"]:
        if not path.exists():
            raise CommandError(_("%(path)s does not exist.") % {"path": path}, returncode=2)
    try:
        owner = user_named(options["owner"]) if options["owner"] else first_staff_user()
    except NotAllowedError:
        raise CommandError(_("There is no user to own the sessions. Name one with --owner."), returncode=2) from None
    with progress_bar(_("Importing"), total=sum(map(_size, options["paths"]))) as advance:
        restore_owners, dry_run = not options["owner"], options["dry_run"]
        import_ = importing.Import(owner, on_bytes=advance, restore_owners=restore_owners, dry_run=dry_run)
        report = import_.run(importing.files_at(options["paths"]), lambda item: _print_item(item, options, out))
    _print_report(report, options, out=out, err=err)
    if refused := report[ImportOutcome.REFUSED]:
        raise CommandError(_("Refused: %(count)s. See the reasons above.") % {"count": refused})


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _print_item(item: ImportItem, options: Options, out: Stream) -> None:
    if options["json"]:
        print_json_line(out, item.as_json())
        return
    if item.outcome in QUIET and options["verbosity"] < 2:
        return
    name = translate_if_lazy(item.title) or item.file
    place = [f"  {item.session}"] if item.session else []
    print_line(out, (item.outcome.value, STYLES[item.outcome]), f"  {name}", *place)
    if item.why:
        print_line(out, translate_sentence(item.why), indent=4)
    for note in item.notes:
        print_line(out, (level_label(note.level), "dim"), f"  {note_text(note)}", indent=4)


def _print_report(report: ImportReport, options: Options, *, out: Stream, err: Stream) -> None:
    if options["json"]:
        print_json_line(out, {"dry_run": options["dry_run"], "report": report.as_json()})
        return
    rows = [
        (_("imported"), report[ImportOutcome.IMPORTED]),
        (_("grown"), report[ImportOutcome.GROWN]),
        (_("already there"), report[ImportOutcome.THERE]),
        (_("repaired among these"), report.repaired),
        (_("refused"), report[ImportOutcome.REFUSED]),
        (_("files without a conversation"), report[ImportOutcome.IGNORED]),
        (_("entries stored"), report.entries),
    ]
    print_counts(out, (_("conversations"), _("count")), rows)
    if options["dry_run"]:
        print_line(err, _("Nothing was imported. Leave out --dry-run to import."))
