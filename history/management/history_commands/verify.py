"""`history verify`: is everything there that was written, and is it what was written?

Findings are printed as they are met, the first one first. A checkpoint, kept elsewhere, shows later that nothing was
cut off at the newest end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history import verification
from history.management.history_commands.arguments import Options, session_named
from history.management.history_commands.printing import print_json_line, print_line, progress_bar
from history.management.output import Stream
from history.models import Message
from history.verification import Checkpoint, VerificationFinding

HELP = "Look through the record for anything altered, missing or dangling."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="only these; default: all, and the audit trail")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="check against a checkpoint written before")
    parser.add_argument("--write-checkpoint", type=Path, metavar="FILE", help="write one, if the record is healthy")


def run(options: Options, *, out: Stream, err: Stream) -> None:
    sessions = [session_named(name, None) for name in options["sessions"]]
    known = _read(options["checkpoint"]) if options["checkpoint"] else None
    damaged = wrong = 0
    total = sum(session.version for session in sessions) if sessions else Message.objects.count()
    with progress_bar(_("Verifying"), total=total) as advance:
        for finding in verification.verify(sessions=sessions or None, checkpoint=known, progress=advance):
            damaged += finding.is_damage
            wrong += not finding.is_damage
            _print_finding(finding, options, out)
    if damaged or wrong:
        _refuse(damaged, wrong, options, out)
    taken = verification.checkpoint()
    if options["write_checkpoint"]:
        _write(taken, options["write_checkpoint"])
    _print_healthy(taken, options, out)


def _print_finding(finding: VerificationFinding, options: Options, out: Stream) -> None:
    if options["json"]:
        print_json_line(
            out,
            {
                "session": finding.session,
                "seq": finding.seq,
                "code": finding.code,
                "severity": finding.severity,
                "sentence": finding.sentence,
            },
        )
        return
    print_line(out, (finding.severity.value, "bold red" if finding.is_damage else "yellow"), f"  {finding}")


def _refuse(damaged: int, wrong: int, options: Options, out: Stream) -> None:
    if options["json"]:
        print_json_line(out, {"healthy": False, "damaged": damaged, "projections": wrong, "checkpoint": None})
    if damaged:
        words = _("The record is damaged (findings: %(damaged)s; in what is made from it: %(wrong)s).")
    else:
        words = _("The record is whole, but what is made from it is not (findings: %(wrong)s): it can be made anew.")
    raise CommandError(words % {"damaged": damaged, "wrong": wrong})


def _print_healthy(taken: Checkpoint, options: Options, out: Stream) -> None:
    summary = _summary(taken)
    if options["json"]:
        print_json_line(out, {"healthy": True, "damaged": 0, "projections": 0, "checkpoint": summary})
        return
    print_line(out, (_("Healthy."), "bold green"))
    for name, value in summary.items():
        print_line(out, f"{name}  {value}", indent=2)


def _summary(taken: Checkpoint) -> dict[str, Any]:
    """Without its list of sessions: few enough numbers to write on paper, and the root vouches for the file."""
    return {
        "entries": taken.entries,
        "last_message_id": taken.last_message_id,
        "sessions": len(taken.sessions),
        "root": taken.root,
        "audit_seq": taken.audit_seq,
        "audit_seal": taken.audit_seal,
    }


def _read(path: Path) -> Checkpoint:
    try:
        return Checkpoint.from_json(json.loads(path.read_text()))
    except OSError as error:
        words = {"path": path, "why": error.strerror}
        raise CommandError(_("%(path)s cannot be read (%(why)s).") % words, returncode=2) from error
    except ValueError as error:
        raise CommandError(f"{path}: {error}", returncode=2) from error


def _write(taken: Checkpoint, path: Path) -> None:
    try:
        path.write_text(json.dumps(taken.to_json()) + "\n")
    except OSError as error:
        raise CommandError(
            _("%(path)s cannot be written (%(why)s).") % {"path": path, "why": error.strerror}
        ) from error
