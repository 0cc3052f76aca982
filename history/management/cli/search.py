"""`history search`: full text of messages, tool calls and results."""

from django.contrib.auth import get_user_model
from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, Viewer
from history.entries import JsonObject
from history.management.cli import arguments
from history.management.output import Piece, Stream, as_cell, print_json, print_line, print_table
from history.models import Message, Session
from history.search import Results, SessionQuery, Snippet, facets, named_facets, search

HELP = "Search messages, tool arguments and results."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("query", metavar="QUERY", help='words, "a phrase", pay*, -without, this OR that; may be empty')
    parser.add_argument("--owner", action="append", default=[], metavar="USER")
    parser.add_argument("--key", action="append", default=[], metavar="PREFIX")
    parser.add_argument("--source", action="append", default=[], choices=Session.Source.values)
    for name in ("client", "agent", "model", "tool"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--role", action="append", default=[], choices=Message.Role.values)
    parser.add_argument("--status", action="append", default=[], choices=Message.Status.values)
    parser.add_argument("--session", action="append", default=[], metavar="SESSION")
    parser.add_argument("--has-error", action="store_true", default=None)
    arguments.add_times(parser)
    parser.add_argument("--limit", type=arguments.page_size, default=20, metavar="N", help="1 to 500; default 20")
    parser.add_argument("--before", type=int, metavar="N", help="cursor at the end of the previous page")
    parser.add_argument("--facets", action="store_true", help="show the number of hits per value instead of the hits")
    arguments.add_viewer(parser)


def run(options: arguments.Options, *, out: Stream, err: Stream) -> None:
    # The operator at the shell has all permissions and no account. Deleted and expired sessions are never searched.
    viewer = arguments.viewer_of(options) or get_user_model()(username="", is_staff=True, is_superuser=True)
    filters = _filters(options)
    if options["facets"]:
        _print_facets(viewer, filters, options, out)
        return
    results = search(viewer, options["query"], filters=filters, before=options["before"], limit=options["limit"])
    if options["json"]:
        print_json(out, _results_json(results))
        return
    for hit in results.hits:
        place: Piece = (f"{str(hit.session_id)[:8]} #{hit.seq}", "bold cyan")
        print_line(out, place, f"  {as_cell(hit.at)}  {hit.role}  ", (hit.title, "dim"))
        print_line(out, *_marked(hit.snippet, coloured=out.isatty()), indent=4)
    print_line(err, _("Messages found: %(count)s") % {"count": results.count})
    if results.next_before:
        print_line(err, _("There are more: --before %(cursor)s") % {"cursor": results.next_before})


def _filters(options: arguments.Options) -> SessionQuery:
    """An unknown owner, key or session is an error here, not an empty result."""
    viewer = arguments.viewer_of(options)
    for name in options["owner"]:
        arguments.user_named(name)
    for prefix in options["key"]:
        arguments.key_named(prefix)
    sessions = tuple(arguments.session_named(name, viewer, Purpose.READ).pk for name in options["session"])
    return SessionQuery.parse({**options, "session": sessions})


def _marked(snippet: Snippet, *, coloured: bool) -> list[Piece]:
    """Matches are coloured, or in brackets without colours."""
    pieces: list[Piece] = ["… "] if snippet.is_cut_before else []
    for text, is_match in snippet.pieces:
        line = text.replace("\n", " ")
        match: Piece = (line, "bold yellow") if coloured else f"[{line}]"
        pieces.append(match if is_match else line)
    return [*pieces, " …"] if snippet.is_cut_after else pieces


def _results_json(results: Results) -> JsonObject:
    same = ("title", "kind", "role", "status", "agent", "model", "at", "on_path")
    hits = [
        {"session": hit.session_id, "seq": hit.seq, "message": hit.message_id}
        | {name: getattr(hit, name) for name in same}
        | {"snippet": [{"text": text, "is_match": is_match} for text, is_match in hit.snippet.pieces]}
        for hit in results.hits
    ]
    totals = {"total": results.count.number, "total_is_exact": results.count.is_exact}
    return {"hits": hits, **totals, "next_before": results.next_before}


def _print_facets(viewer: Viewer, filters: SessionQuery, options: arguments.Options, out: Stream) -> None:
    rows = [
        (facet, value, count)
        for facet, counts in named_facets(facets(viewer, options["query"], filters=filters)).items()
        for value, count in counts.items()
    ]
    if options["json"]:
        print_json(out, [{"facet": f, "value": v, "count": n.number, "is_exact": n.is_exact} for f, v, n in rows])
    else:
        print_table(out, (_("facet"), _("value"), _("messages")), rows)
