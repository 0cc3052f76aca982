"""`history purge`: remove what retention rules say is due. A dry run without --yes."""

import argparse
import dataclasses
from datetime import timedelta

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from history import retention
from history.management.cli.arguments import Options
from history.management.output import Stream, print_counts, print_json, print_line, progress_bar

HELP = "Remove expired sessions, old trash and sessions over a limit. Without --yes, a dry run."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--yes", action="store_true", help="remove the sessions")
    parser.add_argument(
        "--budget", type=_seconds, metavar="SECONDS", help="stop after this many seconds; the next run continues"
    )


def run(options: Options, *, out: Stream, err: Stream) -> None:
    dry_run, budget = not options["yes"], options["budget"]
    with progress_bar(_("Purging")) as advance:
        report = retention.purge(dry_run=dry_run, budget=budget, progress=lambda what, count: advance(count))
    if options["json"]:
        print_json(out, dataclasses.asdict(report))
        return
    rows = (
        (_("sessions that expired"), report.expired),
        (_("sessions from the trash"), report.trashed),
        (_("sessions over a limit"), report.over_cap),
        (_("unfinished forks"), report.unfinished),
        (_("sessions whose removal started earlier"), report.resumed),
        (_("entries of these sessions"), report.messages),
        (_("exchanges"), report.exchanges),
        (_("entries trimmed from other sessions"), report.trimmed),
        (_("entries with removed texts"), report.dropped),
        (_("search rows"), report.search_rows),
        (_("blobs"), report.blobs),
    )
    print_counts(out, (_("to be removed"), _("count")), rows)
    if not report.is_complete:
        print_line(err, _("Time limit reached. The next run continues."))
    if report.dry_run:
        print_line(err, _("Nothing was removed. Add --yes to remove."))


def _seconds(text: str) -> timedelta:
    try:
        budget = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        budget = timedelta(0)
    if budget <= timedelta(0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid time: write a number of seconds greater than 0")
    return budget
