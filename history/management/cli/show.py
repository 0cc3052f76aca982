"""`history show`: one session as text, as stored JSON, or as the context of a model."""

from collections.abc import Sequence

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history.access.permissions import Purpose
from history.context.rendering import VIEWS, render_context
from history.context.values import ContextEntry, ContextOptions, entry_view
from history.entries import KINDS, Entry, JsonObject, ModelInput, ModelOutput, Summary, ToolResults, entry_to_json
from history.management.cli.arguments import Options, add_viewer, page_size, session_named, viewer_of
from history.management.output import Piece, Stream, as_cell, print_json, print_line, print_lines, print_markdown
from history.models import Message, Session
from history.record.paths import versions_of
from history.record.selectors import Page, entries_of, ledger_of, messages_of, snapshot
from history.transcripts.previews import Preview, entries_in_brief, preview
from history.transcripts.serializers import session_details_json

HELP = "Show the entries of a session with times, tokens and branches."

TEXT_CHARS = 20_000
LINE_CHARS = 200
STYLES = {"complete": "green", "success": "green", "failed": "red", "interrupted": "yellow", "skipped": "yellow"}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="session id, or a unique beginning of it")
    parser.add_argument("--limit", type=page_size, default=20, metavar="N", help="1 to 500 entries; default 20")
    parser.add_argument("--before", type=int, metavar="SEQ", help="entries before this one")
    parser.add_argument("--after", type=int, metavar="SEQ", help="entries after this one")
    parser.add_argument("--leaf", type=int, metavar="SEQ", help="the branch that ends with this entry")
    parser.add_argument("--at-version", type=int, metavar="N", help="the session when it had N entries")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="the stored JSON, one entry per line")
    form.add_argument(
        "--all", action="store_true", help="all entries in the order of writing: branches, logs, moved heads"
    )
    form.add_argument("--view", choices=VIEWS, help="the context sent to a model: initial, full, curated or validated")
    add_viewer(parser)


def run(options: Options, *, out: Stream, err: Stream) -> None:
    session = session_named(options["session"], viewer_of(options), Purpose.READ)
    if options["leaf"] and not Message.objects.at(session, options["leaf"]).exists():
        words = {"session": str(session.pk)[:8], "seq": options["leaf"]}
        raise CommandError(_("Session %(session)s has no entry %(seq)s.") % words)
    if options["view"]:
        _show_view(session, options, out=out, err=err)
        return
    page = _page(session, options)
    if options["raw"]:
        for message in page.messages:
            out.write(f"{message.body or 'null'}\n")
    elif options["json"]:
        print_json(out, _page_json(session, page))
    else:
        _print_page(session, page, out=out, err=err)


def _page(session: Session, options: Options) -> Page:
    if options["all"]:
        after = options["after"] or 0
        rows = ledger_of(session, after=after, limit=options["limit"])
        return Page(rows, has_older=after > 0, has_newer=bool(rows) and rows[-1].seq < session.version)
    position = {name: options[name] for name in ("before", "after", "limit", "leaf", "at_version")}
    return messages_of(session, **position)


def _page_json(session: Session, page: Page) -> JsonObject:
    entries = [
        {"seq": message.seq, "parent": message.parent_seq, "on_path": message.on_path}
        | {"dropped_at": message.dropped_at, "entry": entry_to_json(entry)}
        for message, entry in zip(page.messages, entries_of(page.messages), strict=True)
    ]
    ends = {"has_older": page.has_older, "has_newer": page.has_newer}
    return {"session": session_details_json(session), "entries": entries, **ends}


def _print_page(session: Session, page: Page, *, out: Stream, err: Stream) -> None:
    _print_head(session, out)
    versions = versions_of(session, page.messages) if page.messages else {}
    for message, entry in zip(page.messages, entries_in_brief(page.messages), strict=True):
        others = [seq for seq in versions.get(message.parent_seq, ()) if seq != message.seq]
        _print_entry(message, entry, others, out)
    if page.messages and page.has_older:
        print_line(err, _("There are older entries: --before %(seq)s") % {"seq": page.messages[0].seq})
    if page.messages and page.has_newer:
        print_line(err, _("There are newer entries: --after %(seq)s") % {"seq": page.messages[-1].seq})


def _print_head(session: Session, out: Stream) -> None:
    print_line(out, (session.title or _("Untitled"), "bold"))
    facts = {
        "session": session.pk,
        "owner": session.owner.get_username(),
        "source": session.client or session.source,
        "agent": session.agent,
        "workspace": session.workspace,
        "messages": session.message_count,
        "tokens": f"{session.input_tokens:,} / {session.output_tokens:,}",
        "version": session.version,
        "head": session.head,
        "begun": as_cell(session.created_at),
        "last activity": as_cell(session.last_activity_at),
    }
    print_line(out, (" · ".join(f"{name} {value}" for name, value in facts.items() if value != ""), "dim"))


def _print_entry(message: Message, entry: Entry, others: Sequence[int], out: Stream) -> None:
    print_line(out)
    kind = KINDS.get(message.kind)
    term = kind.__name__ if kind else f"Unknown ({message.kind})"
    print_line(out, (f"#{message.seq}  ", "dim"), (term, "bold cyan"), *_facts(message, others))
    if isinstance(entry, ToolResults):
        for result in entry.results:
            line = _on_a_line(result.error or result.text)
            print_line(out, ("← ", "dim"), (result.name, "bold"), " ", _status(result.status), " ", line, indent=4)
        return
    text = preview(message.content if isinstance(entry, ModelOutput) else entry.text, TEXT_CHARS)
    is_formatted = out.isatty() and isinstance(entry, ModelInput | ModelOutput | Summary)
    (print_markdown if is_formatted else print_lines)(out, f"{text.text}{_rest(text)}", indent=4)
    if isinstance(entry, ModelOutput):
        _print_requests(entry, out)


def _print_requests(entry: ContextEntry | ModelOutput, out: Stream) -> None:
    for request in entry.tool_requests:
        line = _on_a_line(request.arguments.replace("\0", "\ufffd"))
        print_line(out, ("→ ", "dim"), (request.name, "bold"), " ", line, indent=4)


def _facts(message: Message, others: Sequence[int]) -> list[Piece]:
    facts: list[Piece] = ["  ", as_cell(message.created_at)]
    if message.kind == ModelOutput.kind:
        facts += ["  ", message.model, "  ", _status(message.status)]
        facts += [f" ({message.end_reason})"] if message.status != Message.Status.COMPLETE else []
        facts += [f"  {message.input_tokens:,} / {message.output_tokens:,} tokens"] if message.usage_source else []
        facts += [f"  {message.duration:.1f} s"] if message.duration is not None else []
    marks = [
        "internal" if message.is_internal else "",
        "not on the path to the head" if not message.on_path else "",
        f"other versions: {', '.join(f'#{seq}' for seq in others)}" if others else "",
    ]
    return [*facts, *((f"  [{mark}]", "magenta") for mark in marks if mark)]


def _status(status: str) -> Piece:
    return status, STYLES.get(status, "")


def _on_a_line(text: str) -> str:
    beginning = preview(text, LINE_CHARS)
    return " ".join(beginning.text.split()) + _rest(beginning)


def _rest(text: Preview) -> str:
    if text.bytes:
        return f" … ({text.bytes:,} bytes)"
    return f" … ({text.chars:,} characters)" if text.chars else ""


def _show_view(session: Session, options: Options, *, out: Stream, err: Stream) -> None:
    """Without limits, for debugging."""
    context_options = ContextOptions(max_turns=None)
    history = snapshot(session, leaf=options["leaf"], at_version=options["at_version"])
    entries = VIEWS[options["view"]](history, context_options)
    remarks = render_context(history, context_options).report.remarks if options["view"] == "validated" else ()
    if options["json"]:
        repairs = [{"code": remark.code, "seq": remark.seq, "text": remark.text} for remark in remarks]
        shown = [entry_view(entry) for entry in entries]
        print_json(out, {"view": options["view"], "entries": shown, "repairs": repairs})
        return
    for entry in entries:
        _print_context_entry(entry, out)
    if not entries:
        print_line(err, _("This view sends nothing to a model."))
    for remark in remarks:
        print_line(err, f"#{remark.seq} {remark.text}")


def _print_context_entry(entry: ContextEntry, out: Stream) -> None:
    origin = ", ".join(f"#{seq}" for seq in entry.origin) or _("created for the call")
    print_line(out, (entry.role.value, "bold cyan"), (f"  {origin}", "dim"))
    text = preview(entry.content.replace("\0", "\ufffd"), TEXT_CHARS)
    print_lines(out, f"{text.text}{_rest(text)}", indent=4)
    _print_requests(entry, out)
