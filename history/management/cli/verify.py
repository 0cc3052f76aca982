"""`history verify`: check the history for altered, missing and dangling rows.

A checkpoint that is stored elsewhere shows later that no newest entries were removed.
"""

import json
from pathlib import Path

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history import verification
from history.management.cli.arguments import Options, session_named
from history.management.output import Stream, print_json_line, print_line, progress_bar
from history.models import Message
from history.verification import Checkpoint

HELP = "Check the record for altered, missing or inconsistent data."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "sessions", nargs="*", metavar="SESSION", help="session ids; default: all sessions and the audit log"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="compare with this checkpoint")
    parser.add_argument(
        "--write-checkpoint", type=Path, metavar="FILE", help="write a checkpoint if the record is healthy"
    )


def run(options: Options, *, out: Stream, err: Stream) -> None:
    sessions = [session_named(name, None) for name in options["sessions"]]
    known = _read(options["checkpoint"]) if options["checkpoint"] else None
    damaged = wrong = 0
    total = sum(session.version for session in sessions) if sessions else Message.objects.count()
    with progress_bar(_("Verifying"), total=total) as advance:
        for finding in verification.verify(sessions=sessions or None, checkpoint=known, progress=advance):
            damaged += finding.is_damage
            wrong += not finding.is_damage
            if options["json"]:
                names = ("session", "seq", "code", "severity", "sentence")
                print_json_line(out, {name: getattr(finding, name) for name in names})
            else:
                print_line(out, (finding.severity.value, "bold red" if finding.is_damage else "yellow"), f"  {finding}")
    if damaged or wrong:
        _refuse(damaged, wrong, options, out)
    taken = verification.checkpoint()
    if path := options["write_checkpoint"]:
        try:
            path.write_text(json.dumps(taken.to_json()) + "\n")
        except OSError as error:
            values = {"path": path, "why": error.strerror}
            raise CommandError(_("%(path)s cannot be written (%(why)s).") % values) from error
    _print_healthy(taken, options, out)


def _refuse(damaged: int, wrong: int, options: Options, out: Stream) -> None:
    if options["json"]:
        print_json_line(out, {"healthy": False, "damaged": damaged, "projections": wrong, "checkpoint": None})
    if damaged:
        words = _("The record is damaged (findings: %(damaged)s; in derived data: %(wrong)s).")
    else:
        words = _("The record is intact, but derived data is not (findings: %(wrong)s). It can be rebuilt.")
    raise CommandError(words % {"damaged": damaged, "wrong": wrong})


def _print_healthy(taken: Checkpoint, options: Options, out: Stream) -> None:
    # Without the list of sessions, for which the root vouches.
    names = ("entries", "last_message_id", "sessions", "root", "audit_seq", "audit_seal")
    summary = {name: len(taken.sessions) if name == "sessions" else getattr(taken, name) for name in names}
    if options["json"]:
        print_json_line(out, {"healthy": True, "damaged": 0, "projections": 0, "checkpoint": summary})
        return
    print_line(out, (_("Healthy."), "bold green"))
    for name, value in summary.items():
        print_line(out, f"{name}  {value}", indent=2)


def _read(path: Path) -> Checkpoint:
    try:
        return Checkpoint.from_json(json.loads(path.read_text()))
    except OSError as error:
        words = {"path": path, "why": error.strerror}
        raise CommandError(_("%(path)s cannot be read (%(why)s).") % words, returncode=2) from error
    except ValueError as error:
        raise CommandError(f"{path}: {error}", returncode=2) from error
