"""`history purge`: remove what the rules say is due. Without --yes it only says what that is."""

from __future__ import annotations

import argparse
import dataclasses
from datetime import timedelta

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from history import retention
from history.management.history_commands.arguments import Options
from history.management.history_commands.printing import print_line, progress_bar
from history.management.output import Stream, print_json, print_table

HELP = "Remove what has expired, lies long in the trash or is over a cap. A dry run unless --yes is given."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--budget", type=_seconds, metavar="SECONDS", help="stop after so long; the next run goes on")


def run(options: Options, *, out: Stream, err: Stream) -> None:
    with progress_bar(_("Purging")) as advance:
        report = retention.purge(
            dry_run=not options["yes"],
            budget=options["budget"],
            progress=lambda what, count: advance(count),
        )
    if options["json"]:
        print_json(out, dataclasses.asdict(report))
        return
    _print(report, out=out, err=err)


def _print(report: retention.PurgeReport, *, out: Stream, err: Stream) -> None:
    rows = (
        (_("sessions that expired"), report.expired),
        (_("sessions from the trash"), report.trashed),
        (_("sessions over a cap"), report.over_cap),
        (_("forks that nobody finished"), report.unfinished),
        (_("sessions whose removal was begun before"), report.resumed),
        (_("entries of these sessions"), report.messages),
        (_("exchanges"), report.exchanges),
        (_("entries trimmed from other sessions"), report.trimmed),
        (_("entries whose texts are dropped"), report.dropped),
        (_("search rows"), report.search_rows),
        (_("blobs"), report.blobs),
    )
    print_table(out, (_("what goes"), _("count")), [(words, f"{count:,}") for words, count in rows])
    if not report.is_complete:
        print_line(err, _("The time was up before everything was done: the next run goes on."))
    if report.dry_run:
        print_line(err, _("Nothing was removed: add --yes to do it."))


def _seconds(text: str) -> timedelta:
    try:
        budget = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        budget = timedelta(0)
    if budget <= timedelta(0):
        raise argparse.ArgumentTypeError(f"'{text}' is no time: write seconds, more than 0")
    return budget
