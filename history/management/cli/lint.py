"""`history lint`: whether OpenAI Chat, Responses, Anthropic and Gemini accept a conversation."""

import sys
from collections.abc import Iterator
from pathlib import Path

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from history.access.permissions import Purpose
from history.formats.reports import translate_sentence
from history.linting import NAMES, LintReport, LintSeverity, NotAConversation, parse_text
from history.management.cli.arguments import Options, add_viewer, session_named, viewer_of
from history.management.output import Stream, print_json, print_line, print_table
from history.pages import lint as lint_page
from history.text.lazy import error_text

HELP = "Check whether four vendors would accept a conversation; show broken rules and a repaired version."

PATH_CHARS = frozenset("./\\_ghijklmnopqrstuvwxyz")  # in paths, never in an id

STYLES = {"rejected": "red", "unportable": "yellow", "odd": "yellow", "taken": "green"}


def add_arguments(parser: CommandParser) -> None:
    names = "session ids, unique beginnings of them, or files; - reads standard input"
    parser.add_argument("session", nargs="*", metavar="SESSION", help=names)
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PATH",
        help="file with a request as JSON, or one request per line",
    )
    parser.add_argument("--language", choices=NAMES, default="", help="format of the request; default: detected")
    parser.add_argument(
        "--vendor", action="append", choices=NAMES, default=[], help="check only this vendor; can be repeated"
    )
    parser.add_argument("--repaired", choices=NAMES, help="print only the repaired request for this vendor")
    add_viewer(parser)


def run(options: Options, *, out: Stream, err: Stream) -> None:
    if not options["session"] and not options["file"]:
        raise CommandError(_("Name a session, a file with --file, or - for standard input."))
    reports = list(_reports(options))
    if options["repaired"]:
        for _source, report in reports:
            print_json(out, next(one.repaired for one in report.verdicts if one.dialect == options["repaired"]))
    elif options["json"]:
        documents = [
            {"source": source, **lint_page.report_json(report, vendors=options["vendor"])} for source, report in reports
        ]
        print_json(out, {"conversations": documents})
    else:
        for source, report in reports:
            _print(source, report, options["vendor"], out)
    verdicts = [(source, lint_page.verdicts_for(report, options["vendor"])) for source, report in reports]
    rejected = [source for source, found in verdicts if any(one.is_rejected for one in found)]
    if rejected and not options["repaired"]:
        raise CommandError(_("Would be rejected: %(names)s.") % {"names": ", ".join(rejected)})


def _reports(options: Options) -> Iterator[tuple[str, LintReport]]:
    viewer = viewer_of(options)
    for name in options["session"]:
        if name == "-":
            yield from _texts("-", sys.stdin.read(), options["language"])
        elif not PATH_CHARS.isdisjoint(name) and Path(name).is_file():
            yield from _texts(name, _read(name), options["language"])
        else:
            session = session_named(name, viewer, Purpose.READ)
            try:
                yield str(session.pk), lint_page.report_on(session)
            except lint_page.TooLong as error:
                raise CommandError(f"{name}: {error}") from None
    for path in options["file"]:
        yield from _texts(path, _read(path), options["language"])


def _read(path: str) -> str:
    try:
        lint_page.check_length(Path(path).stat().st_size // 4)
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, lint_page.TooLong) as error:
        raise CommandError(f"{path}: {error}") from None


def _texts(source: str, text: str, language: str) -> Iterator[tuple[str, LintReport]]:
    try:
        lint_page.check_length(len(text))
        conversations = parse_text(text, language=language)
        for number, one in enumerate(conversations, 1):
            yield source if len(conversations) == 1 else f"{source}:{number}", lint_page.report_on_request(one)
    except (NotAConversation, lint_page.TooLong) as error:
        raise CommandError(f"{source}: {translate_sentence(error_text(error))}") from None


def _print(source: str, report: LintReport, vendors: list[str], out: Stream) -> None:
    language = NAMES.get(report.language) or _("a stored session")
    print_line(out, (source, "bold"), (f"  {language}", "dim"))
    chosen = lint_page.verdicts_for(report, vendors)
    rows = []
    for verdict in chosen:
        levels = [finding.rule.severity for finding in verdict.findings]
        rows.append((NAMES[verdict.dialect], verdict.outcome, *map(levels.count, LintSeverity)))
    print_table(out, (_("provider"), _("outcome"), *(level.value for level in LintSeverity)), rows)
    for verdict in chosen:
        if verdict.findings or verdict.repairs:
            print_line(out)
            print_line(out, (NAMES[verdict.dialect], "bold"))
        for finding in verdict.findings:
            severity, text = finding.rule.severity.value, f"{finding.place}  {translate_sentence(finding.text)}"
            print_line(out, (f"{severity:<11}", STYLES[severity]), text, indent=2)
            print_line(out, (f"{finding.rule.id}  {finding.rule.answer}".rstrip(), "dim"), indent=13)
        for repair in verdict.repairs:
            print_line(
                out, (_("repaired").ljust(11), "green"), f"{repair.place}  {translate_sentence(repair.text)}", indent=2
            )
    print_line(out)
