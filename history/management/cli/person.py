"""`history person USER`: export or erase the personal data of one user."""

import json
from dataclasses import asdict
from pathlib import Path

from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext as _

from history.management.cli.arguments import Options, require_reason, user_named
from history.management.output import Stream, print_counts, print_json, print_line, print_table, progress_bar
from history.privacy import Receipt, erase_person, export_person, plan_for

HELP = "Export or erase all data of one user. Erasing without --yes is a dry run."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("user", metavar="USER", help="username")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--export", metavar="FILE", help="export to a ZIP file (….zip) or to a new folder")
    action.add_argument(
        "--erase", action="store_true", help="remove permanently, without the trash; sessions under hold are kept"
    )
    parser.add_argument("--yes", action="store_true", help="erase the data")
    parser.add_argument("--reason", default="", help="reason for the audit log; required with --erase")
    parser.add_argument("--receipt", metavar="FILE", help="also write the receipt to this file")


def run(options: Options, *, out: Stream, err: Stream) -> None:
    person = user_named(options["user"])
    if options["export"]:
        _export(person, options, out)
    elif options["yes"]:
        _erase(person, options, out)
    else:
        _plan(person, options, out=out, err=err)


def _export(person: AbstractUser, options: Options, out: Stream) -> None:
    with progress_bar(_("Exporting")) as advance:
        manifest = export_person(person, Path(options["export"]), reason=options["reason"], progress=advance)
    if options["json"]:
        print_json(out, manifest)
        return
    rows = [(file["name"], f"{file.get('rows', 0):,}", f"{file['bytes']:,}") for file in manifest["files"]]
    print_table(out, (_("file"), _("rows"), _("bytes")), rows)


def _plan(person: AbstractUser, options: Options, *, out: Stream, err: Stream) -> None:
    plan = plan_for(person)
    if options["json"]:
        kept = [str(pk) for pk in plan.kept]
        counts = {name: getattr(plan, name) for name in ("sessions", "entries", "exchanges", "keys")}
        print_json(out, {"dry_run": True, "would_remove": counts, "would_keep": kept})
        return
    rows = [(_("sessions"), plan.sessions), (_("entries"), plan.entries), (_("keys"), plan.keys)]
    print_counts(out, (_("to be removed"), _("count")), rows)
    for session in plan.kept:
        print_line(out, _("kept because of a hold: %(session)s") % {"session": session})
    print_line(err, _("Nothing was erased. Add --yes and --reason to erase."))


def _erase(person: AbstractUser, options: Options, out: Stream) -> None:
    require_reason(options)
    path = _new_file(options["receipt"]) if options["receipt"] else None
    with progress_bar(_("Erasing")) as advance:
        receipt = erase_person(person, reason=options["reason"], progress=advance)
    if path:
        path.write_text(json.dumps(asdict(receipt), cls=DjangoJSONEncoder, ensure_ascii=False, indent=2) + "\n")
    if options["json"]:
        print_json(out, asdict(receipt))
    else:
        _print(receipt, out)


def _new_file(name: str) -> Path:
    """Created before anything is erased, so that a path that cannot be written stops the command."""
    try:
        Path(name).touch(mode=0o600, exist_ok=False)
    except OSError as error:
        words = {"path": name, "why": error.strerror}
        raise CommandError(_("%(path)s cannot be written (%(why)s).") % words) from error
    return Path(name)


def _print(receipt: Receipt, out: Stream) -> None:
    facts = {"user": receipt.person["username"], "at": receipt.at.isoformat(), "reason": receipt.reason}
    for name, value in facts.items():
        print_line(out, f"{name}  {value}")
    print_line(out, _("The account is now called %(name)s.") % {"name": receipt.person["now"]})
    print_counts(out, (_("removed"), _("count")), receipt.removed.items())
    for kept in receipt.kept:
        print_line(out, _("kept") + f"  {kept['session']}  ({kept['why']})")
    print_line(out, f"audit  #{receipt.checkpoint['audit_seq']} {receipt.checkpoint['audit_seal']}")
