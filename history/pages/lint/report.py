"""Lint reports of stored sessions and pasted requests, translated and as JSON. The rules are in `history.linting`."""

from collections.abc import Collection, Mapping

from django.utils.translation import gettext as _

from history import linting
from history.entries import JsonObject
from history.models import Session
from history.record.loading import bytes_of
from history.record.selectors import snapshot

# Limits of what is linted: a conversation, not an archive.
MAX_CHARS = 2_000_000
MAX_ENTRIES = 5_000
MAX_VALUES = 100_000


class TooLong(ValueError):
    """The text names the limit."""


def report_on(session: Session) -> linting.LintReport:
    _check_count(session.version)
    return linting.lint_session(snapshot(session), media=bytes_of)


def report_on_request(parsed: linting.LintInput) -> linting.LintReport:
    _check_count(parsed.count)
    if _has_more_values(parsed.body, MAX_VALUES):
        raise linting.NotAConversation(_("too many values"))
    return linting.lint_request(parsed)


def _has_more_values(value: object, most: int) -> bool:
    """A short text of nested brackets takes long to lint."""
    waiting, count = [value], 0
    while waiting and count <= most:
        outer = waiting.pop()
        inner = list(outer.values()) if isinstance(outer, Mapping) else outer if isinstance(outer, list) else []
        count += len(inner)
        waiting.extend(inner)
    return count > most


def _check_count(count: int) -> None:
    if count > MAX_ENTRIES:
        words = {"limit": f"{MAX_ENTRIES:,}", "count": f"{count:,}"}
        raise TooLong(_("A conversation can have up to %(limit)s messages; this one has %(count)s.") % words)


def check_length(chars: int) -> None:
    if chars > MAX_CHARS:
        words = {"limit": f"{MAX_CHARS:,}", "count": f"{chars:,}"}
        raise TooLong(_("Up to %(limit)s characters are checked; this has %(count)s.") % words)


def verdicts_for(report: linting.LintReport, vendors: Collection[str]) -> list[linting.Verdict]:
    return [verdict for verdict in report.verdicts if not vendors or verdict.dialect in vendors]


def report_json(report: linting.LintReport, *, vendors: Collection[str] = ()) -> JsonObject:
    chosen = verdicts_for(report, vendors)
    return {
        "language": report.language,
        "rejected": any(verdict.is_rejected for verdict in chosen),
        "verdicts": [_verdict(verdict) for verdict in chosen],
    }


def _verdict(verdict: linting.Verdict) -> JsonObject:
    return {
        "vendor": verdict.dialect,
        "name": linting.NAMES[verdict.dialect],
        "outcome": verdict.outcome,
        "native": verdict.is_native,
        "findings": [
            {
                "rule": finding.rule.id,
                "severity": finding.rule.severity.value,
                "place": finding.place,
                "text": finding.text,
                "answer": finding.rule.answer,
            }
            for finding in verdict.findings
        ],
        "repairs": [{"code": one.code, "place": one.place, "text": one.text} for one in verdict.repairs],
        "repaired": verdict.repaired,
    }
