"""The linter for what lies in the database, and its findings for programs and for people.

The rules know nothing of Django (`history.linting`); here sessions are read for them, and their texts translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from history.context import ContextOptions, entry_view, full_view
from history.formats.note_texts import worded
from history.linting import (
    NAMES,
    LintFinding,
    LintInput,
    LintReport,
    NotAConversation,
    Repair,
    Verdict,
    lint_request,
    lint_session,
)
from history.models import Blob, Session
from history.record.selectors import snapshot
from history.text.lazy import LazyText

# More than this is not looked at: a conversation, not an archive.
MAX_CHARS = 2_000_000
MAX_ENTRIES = 5_000
MAX_VALUES = 100_000


class TooLong(ValueError):
    """The text says what the limit is."""


def report_on(session: Session) -> LintReport:
    _check_count(session.version)
    return lint_session(snapshot(session), media=_bytes_of)


def report_on_request(given: LintInput) -> LintReport:
    _check_count(given.count)
    if _has_more_values(given.body, MAX_VALUES):
        raise NotAConversation(_("it has too many values to be read"))
    return lint_request(given)


def _has_more_values(value: Any, most: int) -> bool:
    """Nothing but brackets is short to write and long to look at."""
    waiting, count = [value], 0
    while waiting and count <= most:
        found = waiting.pop()
        inner: Any = found.values() if isinstance(found, Mapping) else found if isinstance(found, list) else ()
        count += len(inner)
        waiting.extend(inner)
    return count > most


def _check_count(count: int) -> None:
    if count > MAX_ENTRIES:
        words = {"limit": f"{MAX_ENTRIES:,}", "count": f"{count:,}"}
        raise TooLong(_("Conversations of up to %(limit)s messages are looked at; this one has %(count)s.") % words)


def check_length(chars: int) -> None:
    if chars > MAX_CHARS:
        words = {"limit": f"{MAX_CHARS:,}", "count": f"{chars:,}"}
        raise TooLong(_("Up to %(limit)s characters are looked at; this is %(count)s.") % words)


def as_it_is(session: Session) -> list[dict[str, Any]]:
    """What was said in a session, in the words of the record: the left side of a comparison."""
    return [entry_view(entry) for entry in full_view(snapshot(session), ContextOptions(max_turns=None))]


def _bytes_of(sha256: str) -> bytes:
    blob = Blob.objects.filter(pk=sha256).only("data").first()
    if blob is None:
        raise LookupError(sha256)
    return bytes(blob.data)


# In words.


def words_of(told: LintFinding) -> str:
    return worded(LazyText(told.rule.words, **told.about))


def repair_words(told: Repair) -> str:
    return worded(LazyText(told.sentence, **told.values))


def name_of(dialect: str) -> str:
    return NAMES[dialect]


# For programs.


def as_json(report: LintReport, *, vendors: Iterable[str] = ()) -> dict[str, Any]:
    chosen = [verdict for verdict in report.verdicts if not vendors or verdict.dialect in vendors]
    return {
        "language": report.language,
        "rejected": any(verdict.is_rejected for verdict in chosen),
        "verdicts": [_verdict(verdict) for verdict in chosen],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "vendor": verdict.dialect,
        "name": NAMES[verdict.dialect],
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
