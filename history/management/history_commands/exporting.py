"""`history export`: sessions into a file, a folder or a pipe, in any format; what is lost on the way goes to stderr."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history.exporting import Export, ExportReport, Selection, begin
from history.formats.exporters import EXPORTERS
from history.formats.note_texts import level_word, note_words
from history.management.history_commands.arguments import (
    Options,
    add_viewer,
    end_moment,
    moment,
    session_named,
    viewer_of,
)
from history.management.history_commands.printing import print_json_line, print_line, progress_bar
from history.management.output import Stream, is_a_terminal
from history.models import Session
from history.record.listing import ListFilters

HELP = "Export sessions: all of them, those that are named, or those that filters leave."

FILTERS = ("owner", "key", "source", "agent", "workspace", "model")


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="ids, or as much of each as names one session")
    parser.add_argument("--format", choices=list(EXPORTERS), default="jsonl")
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="a file, or a folder (with / at its end); default: stdout"
    )
    parser.add_argument("--gzip", action="store_true", help="compress it")
    parser.add_argument(
        "--since", metavar="CURSOR", help="'start', or where the last export ended: what is new, jsonl only"
    )
    parser.add_argument("--mine", action="store_true", help="with --as: only what is their own")
    parser.add_argument("--reason", default="", help="with --as: why they export what is somebody else's")
    parser.add_argument("--source", choices=Session.Source.values)
    for name, metavar in (
        ("owner", "USER"),
        ("key", "PREFIX"),
        ("agent", "NAME"),
        ("workspace", "PATH"),
        ("model", "NAME"),
    ):
        parser.add_argument(f"--{name}", metavar=metavar)
    times = "last activity: 2026-11-01, 2026-11-01T14:00, or 7d, 12h, 30m ago"
    parser.add_argument("--active-since", type=moment, metavar="TIME", help=times)
    parser.add_argument("--active-until", type=end_moment, metavar="TIME", help="likewise; a day counts as a whole")
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
    _tell(export.report, options, err)


def _export(options: Options) -> Export:
    viewer = viewer_of(options)
    if options["mine"] and viewer is None:
        raise CommandError(_("--mine needs --as: whose?"), returncode=2)
    named = tuple(session_named(name, viewer).pk for name in options["sessions"]) or None
    filters = {name: options[name] for name in FILTERS}
    times = {"since": options["active_since"], "until": options["active_until"]}
    selection = Selection(sessions=named, mine=options["mine"], filters=ListFilters(**filters, **times))
    return begin(
        viewer,
        selection,
        options["format"],
        since=options["since"],
        reason=options["reason"],
        compress=options["gzip"],
    )


def _write(export: Export, options: Options, out: Stream, advance: Any) -> None:
    where = options["output"]
    if where in (None, "-"):
        _write_out(_watched(export, export.pieces(), advance), export, out)
    elif not where.endswith(os.sep) and not Path(where).is_dir():
        _write_file(Path(where), _watched(export, export.pieces(), advance))
    elif export.exporter.one_file:
        _write_file(Path(where) / export.file_name, _watched(export, export.pieces(), advance))
    else:
        for name, pieces in export.files():
            _write_file(Path(where) / name, pieces)
            advance(1)


def _watched(export: Export, pieces: Iterable[bytes], advance: Any) -> Iterator[bytes]:
    told = 0
    for piece in pieces:
        yield piece
        advance(export.done - told)
        told = export.done


def _write_out(pieces: Iterator[bytes], export: Export, out: Stream) -> None:
    """Write bytes to the buffer of a command's output stream."""
    if is_a_terminal(out) and (export.is_archive or export.compress):
        raise CommandError(_("This is nothing to look at: name a file with -o."), returncode=2)
    behind = getattr(getattr(out, "_out", out), "buffer", None)
    if behind is not None:
        for piece in pieces:
            behind.write(piece)
        behind.flush()
        return
    text = b"".join(pieces)  # a stream of text alone, as tests have it
    out.write(text.decode("utf-8", "replace"))


def _write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Under its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.part")
    try:
        with begun.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)


def _tell(report: ExportReport, options: Options, err: Stream) -> None:
    if options["json"]:
        print_json_line(err, report.to_json())
        return
    told = {"sessions": report.sessions, "bytes": f"{report.bytes:,}"}
    print_line(err, _("Sessions exported: %(sessions)s (%(bytes)s bytes)") % told)
    for note in report.notes:
        print_line(err, (f"{level_word(note.level)}: ", "yellow" if note.level == "lost" else "dim"), note_words(note))
    if report.cursor:
        print_line(err, _("The next export goes on with --since %(cursor)s") % {"cursor": report.cursor})
