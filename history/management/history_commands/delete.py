"""`history delete`: into the trash, or with --erase for good. Without --yes it only says what would go."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history import retention
from history.access.permissions import Purpose
from history.access.reasons import ReasonNeeded, check_reason, is_own
from history.management.history_commands.arguments import Options, add_viewer, session_named, viewer_of
from history.management.history_commands.printing import print_line, progress_bar
from history.management.output import Stream, print_json, print_table
from history.models import Session
from history.sessions import actions

HELP = "Delete sessions: into the trash, or for good with --erase. A dry run unless --yes is given."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION", help="ids, or as much of each as names one session")
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--erase", action="store_true", help="for good, past the trash; needs --reason")
    parser.add_argument("--reason", default="", help="kept in the audit trail")
    add_viewer(parser)


def run(options: Options, *, out: Stream, err: Stream) -> None:
    if options["erase"] and not options["reason"].strip():
        raise CommandError(_("Erasing needs a reason: add --reason."), returncode=2)
    viewer = viewer_of(options)
    sessions = {
        session.pk: session for session in (session_named(name, viewer, Purpose.DELETE) for name in options["sessions"])
    }
    if viewer is not None and not all(is_own(viewer, session) for session in sessions.values()):
        _check(options["reason"])
    outcomes = {pk: _outcome(session, viewer, options) for pk, session in _watched(sessions, options)}
    _print(list(sessions.values()), outcomes, options, out=out, err=err)
    if refused := [pk for pk, outcome in outcomes.items() if outcome == "held"]:
        raise CommandError(_("Under hold and left alone: %(count)s. Release them first.") % {"count": len(refused)})


def _check(reason: str) -> None:
    try:
        check_reason(reason)
    except ReasonNeeded as error:
        raise CommandError(_("It belongs to another user: give a reason with --reason."), returncode=2) from error


def _watched(sessions: dict[Any, Session], options: Options) -> Any:
    with progress_bar(_("Deleting"), total=len(sessions)) as advance:
        for item in sessions.items():
            yield item
            advance(1)


def _outcome(session: Session, actor: AbstractUser | None, options: Options) -> str:
    """A word for what happened, or would happen."""
    if session.hold and (options["erase"] or actor is None or not is_own(actor, session)):
        return "held"
    if not options["yes"]:
        return "would be erased" if options["erase"] else "would be hidden"
    try:
        if not options["erase"]:
            return "hidden" if actions.delete(session, by=actor, reason=options["reason"]) else "hidden before"
        retention.erase(session, actor=actor, reason=options["reason"])
    except retention.UnderHold:
        return "held"
    return "erased"


def _print(sessions: list[Session], outcomes: dict[Any, str], options: Options, *, out: Stream, err: Stream) -> None:
    if options["json"]:
        rows = [{"session": s.pk, "messages": s.message_count, "outcome": outcomes[s.pk]} for s in sessions]
        print_json(out, {"dry_run": not options["yes"], "sessions": rows})
        return
    columns = (_("session"), _("messages"), _("title"), _("outcome"))
    print_table(out, columns, [(s.pk, s.message_count, s.title, outcomes[s.pk]) for s in sessions])
    if not options["yes"]:
        print_line(err, _("Nothing was deleted: add --yes to do it."))
