"""`history list`: sessions, newest activity first."""

import argparse

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from history.management.cli.arguments import Options, add_times, add_viewer, page_size, sessions_for, viewer_of
from history.management.output import Stream, print_json, print_line, print_table
from history.models import Session
from history.record.listing import ListCursor, SessionPage, list_sessions
from history.search import SessionQuery
from history.transcripts.serializers import retention_state, session_details_json

HELP = "List sessions, newest activity first."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--owner", metavar="USER")
    parser.add_argument("--key", metavar="PREFIX", help="only sessions recorded with this API key")
    parser.add_argument("--source", choices=Session.Source.values)
    parser.add_argument("--agent")
    parser.add_argument("--workspace", help="with --agent: one agent's history in one workspace")
    parser.add_argument("--model")
    add_times(parser)
    parser.add_argument("--limit", type=page_size, default=50, metavar="N", help="1 to 500; default 50")
    parser.add_argument("--before", type=_cursor, metavar="CURSOR", help="cursor at the end of the previous page")
    add_viewer(parser)


def run(options: Options, *, out: Stream, err: Stream) -> None:
    sessions = SessionQuery.parse(options).apply(sessions_for(viewer_of(options)))
    page = list_sessions(sessions, before=options["before"], limit=options["limit"])
    if options["json"]:
        cursor = str(page.next_before) if page.next_before else None
        print_json(out, {"sessions": list(map(session_details_json, page.sessions)), "next_before": cursor})
    elif page.sessions:
        _print(page, out=out, err=err)
    else:
        print_line(err, _("No session matches."))


def _print(page: SessionPage, *, out: Stream, err: Stream) -> None:
    columns = (
        _("session"), _("last activity"), _("owner"), _("source"), _("messages"), _("model"), _("state"), _("title"),
    )  # fmt: skip
    rows = [
        (str(one.pk)[:8], one.last_activity_at, one.owner.get_username(), one.client or one.source,
         one.message_count, one.model, retention_state(one), one.title)
        for one in page.sessions
    ]  # fmt: skip
    print_table(out, columns, rows)
    if page.next_before:
        print_line(err, _("There are more: --before %(cursor)s") % {"cursor": page.next_before})


def _cursor(text: str) -> ListCursor:
    try:
        return ListCursor.read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid cursor: copy it from the end of a list") from None
