"""The page /lint/ and lint reports: whether OpenAI Chat, Responses, Anthropic and Gemini accept a conversation.

Reports are of stored sessions and pasted requests, translated and as JSON; the rules are in `history.linting`. Pasted
conversations are not stored.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, gettext_lazy as _, gettext_noop

from history import linting
from history.context.rendering import full_view
from history.context.values import ContextOptions, entry_view
from history.entries import JsonObject
from history.formats.reports import translate_sentence
from history.http import FORM_OVERHEAD, accepts_body, user_form
from history.models import Session
from history.pages.session import session_or_404
from history.record.loading import bytes_of
from history.record.selectors import sessions_owned_by, snapshot

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
        raise linting.NotAConversation(gettext("too many values"))
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
        raise TooLong(gettext("A conversation can have up to %(limit)s messages; this one has %(count)s.") % words)


def check_length(chars: int) -> None:
    if chars > MAX_CHARS:
        words = {"limit": f"{MAX_CHARS:,}", "count": f"{chars:,}"}
        raise TooLong(gettext("Up to %(limit)s characters are checked; this has %(count)s.") % words)


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


SESSIONS = 50
PASTED_CHARS = 600_000  # Django reads a form into memory; a longer text is uploaded as a file
SHOWN_CHARS = 300_000
BYTES_PER_CHAR = 4  # at most, in UTF-8
SHOWN_FINDINGS = 200

OUTCOMES = {"rejected": _("rejected"), "unportable": _("unportable"), "odd": _("odd"), "taken": _("accepted")}


class LintForm(forms.Form):
    text = forms.CharField(
        label=_("A conversation as JSON"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false", "class": "mono"}),
        help_text=_("A request body of one of the four providers, or only its list of messages."),
    )
    file = forms.FileField(label=_("or a file"), required=False)
    language = forms.ChoiceField(
        label=_("Format"), required=False, choices=[("", _("Detect automatically")), *linting.NAMES.items()]
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        try:
            text = _text_in(cleaned.get("file"), cleaned.get("text", ""))
        except UnicodeDecodeError:
            raise forms.ValidationError(_("This file is not UTF-8.")) from None
        except TooLong as error:
            raise forms.ValidationError(str(error)) from None
        if not text.strip():
            raise forms.ValidationError(_("Paste a conversation or choose a file."))
        return {**cleaned, "text": text}


def _text_in(file: UploadedFile[Any] | None, pasted: str) -> str:
    if file is None:
        if len(pasted) > PASTED_CHARS:
            words = {"limit": f"{PASTED_CHARS:,}", "most": f"{MAX_CHARS:,}"}
            problem = gettext("Paste up to %(limit)s characters, or choose a file of up to %(most)s.")
            raise TooLong(problem % words)
        return pasted
    check_length((file.size or 0) // 4)
    text: str = file.read().decode("utf-8-sig")
    check_length(len(text))
    return text


def _shown(verdict: linting.Verdict) -> dict[str, Any]:
    levels = [finding.rule.severity for finding in verdict.findings]
    findings = verdict.findings[:SHOWN_FINDINGS]
    return {
        "verdict": verdict,
        "name": linting.NAMES[verdict.dialect],
        "outcome": OUTCOMES[verdict.outcome],
        "counts": [(OUTCOMES[level.value], levels.count(level)) for level in linting.LintSeverity if level in levels],
        "findings": [(one, OUTCOMES[one.rule.severity.value], translate_sentence(one.text)) for one in findings],
        "more": max(0, len(verdict.findings) - SHOWN_FINDINGS),
        "repairs": [(repair.place, translate_sentence(repair.text)) for repair in verdict.repairs[:SHOWN_FINDINGS]],
        "repaired": "" if verdict.repaired is None else _indented(verdict.repaired),
    }


@accepts_body(lambda: MAX_CHARS * BYTES_PER_CHAR + FORM_OVERHEAD)
@user_form
def lint(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return _lint_pasted(request)
    if name := request.GET.get("session", ""):
        return _lint_session(request, name)
    return _page(request, LintForm())


def _lint_pasted(request: HttpRequest) -> HttpResponse:
    form = LintForm(request.POST, request.FILES)
    if not form.is_valid():
        return _page(request, form, status=422)
    try:
        conversations = linting.parse_text(form.cleaned_data["text"], language=form.cleaned_data["language"])
        if len(conversations) > 1:
            raise linting.NotAConversation(gettext_noop("several conversations, one per line: check one at a time"))
        [parsed] = conversations
        return _page(request, form, report_on_request(parsed), given=_indented(parsed.body))
    except TooLong as error:
        form.add_error(None, str(error))
    except linting.NotAConversation as error:
        form.add_error(None, gettext("Not a conversation: %(why)s.") % {"why": translate_sentence(error.lazy_text)})
    return _page(request, form, status=422)


def _lint_session(request: HttpRequest, name: str) -> HttpResponse:
    session = session_or_404(request.user, name)
    try:
        report = report_on(session)
    except TooLong as error:
        return _page(request, LintForm(), session=session, problem=str(error), status=422)
    entries = [entry_view(entry) for entry in full_view(snapshot(session), ContextOptions(max_turns=None))]
    return _page(request, LintForm(), report, given=_indented(entries), session=session)


def _page(
    request: HttpRequest, form: LintForm, report: linting.LintReport | None = None, *, status: int = 200, **shown: Any
) -> HttpResponse:
    sessions = sessions_owned_by(request.user).order_by("-last_activity_at").only("id", "title")[:SESSIONS]
    verdicts = [_shown(verdict) for verdict in report.verdicts] if report else []
    worst = next((shown for shown in verdicts if shown["verdict"].is_rejected), verdicts[0] if verdicts else None)
    context = {
        "form": form,
        "report": report,
        "language": linting.NAMES.get(report.language, "") if report else "",
        "verdicts": verdicts,
        "open": worst,
        "sessions": sessions,
        **shown,
    }
    return render(request, "history/lint/page.html", context, status=status)


def _indented(value: object) -> str:
    """Indented JSON, cut if it is very long. The command line prints all of it."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=dict)
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= SHOWN_CHARS:
        return text
    return text[:SHOWN_CHARS] + "\n… " + gettext("cut here; `history lint` prints everything")
