"""`history export`: sessions into a file, a folder or a pipe. The report of losses goes to stderr."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history.exporting import Export, ExportReport, Selection, begin
from history.formats.reports import level_label, note_text
from history.formats.writers import EXPORTERS
from history.management.cli.arguments import Options, add_times, add_viewer, session_named, viewer_of
from history.management.output import Stream, print_json_line, print_line, progress_bar
from history.models import Session
from history.search import SessionQuery

HELP = "Export all sessions, the named sessions, or the sessions that match the filters."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="session ids, or unique beginnings of them")
    parser.add_argument("--format", choices=list(EXPORTERS), default="jsonl")
    output = "output file, or folder with a trailing /; default: stdout"
    parser.add_argument("-o", "--output", metavar="PATH", help=output)
    parser.add_argument("--gzip", action="store_true", help="compress the output")
    since = "only changes since this cursor: 'start', or the cursor of the last export; jsonl only"
    parser.add_argument("--since", metavar="CURSOR", help=since)
    parser.add_argument("--mine", action="store_true", help="with --as: only sessions that this user owns")
    parser.add_argument("--reason", default="", help="with --as: the reason for exporting sessions of other users")
    parser.add_argument("--source", choices=Session.Source.values)
    metavars = {"owner": "USER", "key": "PREFIX", "agent": "NAME", "workspace": "PATH", "model": "NAME"}
    for name, metavar in metavars.items():
        parser.add_argument(f"--{name}", metavar=metavar)
    add_times(parser, prefix="active-", about="last activity: ")
    add_viewer(parser)


def run(options: Options, *, out: Stream, err: Stream) -> None:
    export = _export(options)
    with progress_bar(_("Exporting"), total=len(export.chosen)) as advance:
        try:
            _write(export, options, out, advance)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            words = {"path": options["output"] or "stdout", "words": error.strerror or str(error)}
            raise CommandError(_("Cannot write to %(path)s: %(words)s.") % words) from error
    _print_report(export.report, options, err)


def _export(options: Options) -> Export:
    viewer = viewer_of(options)
    if options["mine"] and viewer is None:
        raise CommandError(_("--mine requires --as."), returncode=2)
    named = tuple(session_named(name, viewer).pk for name in options["sessions"]) or None
    times = {"since": options["active_since"], "until": options["active_until"]}
    selection = Selection(sessions=named, mine=options["mine"], filters=SessionQuery.parse({**options, **times}))
    chosen = {"since": options["since"], "reason": options["reason"], "compress": options["gzip"]}
    return begin(viewer, selection, options["format"], **chosen)


def _write(export: Export, options: Options, out: Stream, advance: Callable[[int], None]) -> None:
    target = options["output"]
    if target in (None, "-"):
        _write_out(_with_progress(export, advance), export, out)
    elif not target.endswith(os.sep) and not Path(target).is_dir():
        _write_file(Path(target), _with_progress(export, advance))
    elif export.exporter.one_file:
        _write_file(Path(target) / export.file_name, _with_progress(export, advance))
    else:
        for name, pieces in export.files():
            _write_file(Path(target) / name, pieces)
            advance(1)


def _with_progress(export: Export, advance: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    for piece in export.pieces():
        yield piece
        advance(export.done - done)
        done = export.done


def _write_out(pieces: Iterator[bytes], export: Export, out: Stream) -> None:
    if out.isatty() and (export.is_archive or export.is_compressed):
        raise CommandError(_("Binary data: name a file with -o."), returncode=2)
    buffer = getattr(getattr(out, "_out", out), "buffer", None)
    if buffer is None:  # a text stream, in tests
        out.write(b"".join(pieces).decode("utf-8", "replace"))
        return
    for piece in pieces:
        buffer.write(piece)
    buffer.flush()


def _write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Under another name until it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _print_report(report: ExportReport, options: Options, err: Stream) -> None:
    if options["json"]:
        print_json_line(err, asdict(report))
        return
    totals = {"sessions": report.sessions, "bytes": f"{report.bytes:,}"}
    print_line(err, _("Sessions exported: %(sessions)s (%(bytes)s bytes)") % totals)
    for note in report.notes:
        print_line(err, (f"{level_label(note.level)}: ", "yellow" if note.level == "lost" else "dim"), note_text(note))
    if report.cursor:
        print_line(err, _("The next export continues with --since %(cursor)s") % {"cursor": report.cursor})
