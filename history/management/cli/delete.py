"""`history delete`: move sessions to the trash, or erase them. A dry run without --yes."""

from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history import retention
from history.access.permissions import Purpose
from history.access.reasons import ReasonNeeded, check_reason, is_own
from history.management.cli.arguments import Options, add_viewer, require_reason, session_named, viewer_of
from history.management.output import Stream, print_json, print_line, print_table, progress_bar
from history.models import Session
from history.sessions import actions

HELP = "Move sessions to the trash, or remove them permanently with --erase. Without --yes, a dry run."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION", help="session ids, or unique beginnings of them")
    parser.add_argument("--yes", action="store_true", help="delete the sessions")
    parser.add_argument("--erase", action="store_true", help="remove permanently, without the trash; requires --reason")
    parser.add_argument("--reason", default="", help="reason for the audit log")
    add_viewer(parser)


def run(options: Options, *, out: Stream, err: Stream) -> None:
    if options["erase"]:
        require_reason(options)
    viewer = viewer_of(options)
    named = [session_named(name, viewer, Purpose.DELETE) for name in options["sessions"]]
    sessions = list({session.pk: session for session in named}.values())
    if viewer is not None and not all(is_own(viewer, session) for session in sessions):
        try:
            check_reason(options["reason"])
        except ReasonNeeded as error:
            text = _("This session belongs to another user. Give a reason with --reason.")
            raise CommandError(text, returncode=2) from error
    outcomes: list[tuple[Session, str]] = []
    with progress_bar(_("Deleting"), total=len(sessions)) as advance:
        for session in sessions:
            outcomes.append((session, _delete(session, viewer, options)))
            advance(1)
    _print(outcomes, options, out=out, err=err)
    if refused := sum(outcome == "held" for _session, outcome in outcomes):
        raise CommandError(_("Under hold and unchanged: %(count)s. Release them first.") % {"count": refused})


def _delete(session: Session, actor: AbstractUser | None, options: Options) -> str:
    """Delete the session unless this is a dry run, and return the outcome."""
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


def _print(outcomes: list[tuple[Session, str]], options: Options, *, out: Stream, err: Stream) -> None:
    if options["json"]:
        rows = [{"session": one.pk, "messages": one.message_count, "outcome": outcome} for one, outcome in outcomes]
        print_json(out, {"dry_run": not options["yes"], "sessions": rows})
        return
    columns = (_("session"), _("messages"), _("title"), _("outcome"))
    print_table(out, columns, [(one.pk, one.message_count, one.title, outcome) for one, outcome in outcomes])
    if not options["yes"]:
        print_line(err, _("Nothing was deleted. Add --yes to delete."))
