"""The page /lint/: whether OpenAI Chat, Responses, Anthropic and Gemini accept a conversation.

Pasted conversations are not stored.
"""

import json
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _

from history.context.rendering import full_view
from history.context.values import ContextOptions, entry_view
from history.formats.reports import worded
from history.http import FORM_OVERHEAD, accepts_body, user_form
from history.linting import NAMES, LintReport, LintSeverity, NotAConversation, Verdict, parse_text
from history.pages.lint import report as reports
from history.pages.session import session_or_404
from history.record.selectors import sessions_owned_by, snapshot

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
        label=_("Format"), required=False, choices=[("", _("Detect automatically")), *NAMES.items()]
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        try:
            text = _text_in(cleaned.get("file"), cleaned.get("text", ""))
        except UnicodeDecodeError:
            raise forms.ValidationError(_("This file is not UTF-8.")) from None
        except reports.TooLong as error:
            raise forms.ValidationError(str(error)) from None
        if not text.strip():
            raise forms.ValidationError(_("Paste a conversation or choose a file."))
        return {**cleaned, "text": text}


def _text_in(file: UploadedFile[Any] | None, pasted: str) -> str:
    if file is None:
        if len(pasted) > PASTED_CHARS:
            words = {"limit": f"{PASTED_CHARS:,}", "most": f"{reports.MAX_CHARS:,}"}
            problem = gettext("Paste up to %(limit)s characters, or choose a file of up to %(most)s.")
            raise reports.TooLong(problem % words)
        return pasted
    reports.check_length((file.size or 0) // 4)
    text: str = file.read().decode("utf-8-sig")
    reports.check_length(len(text))
    return text


def _shown(verdict: Verdict) -> dict[str, Any]:
    levels = [finding.rule.severity for finding in verdict.findings]
    findings = verdict.findings[:SHOWN_FINDINGS]
    return {
        "verdict": verdict,
        "name": NAMES[verdict.dialect],
        "outcome": OUTCOMES[verdict.outcome],
        "counts": [(OUTCOMES[level.value], levels.count(level)) for level in LintSeverity if level in levels],
        "findings": [(one, OUTCOMES[one.rule.severity.value], worded(one.text)) for one in findings],
        "more": max(0, len(verdict.findings) - SHOWN_FINDINGS),
        "repairs": [(repair.place, worded(repair.text)) for repair in verdict.repairs[:SHOWN_FINDINGS]],
        "repaired": "" if verdict.repaired is None else _indented(verdict.repaired),
    }


@accepts_body(lambda: reports.MAX_CHARS * BYTES_PER_CHAR + FORM_OVERHEAD)
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
        conversations = parse_text(form.cleaned_data["text"], language=form.cleaned_data["language"])
        if len(conversations) > 1:
            raise NotAConversation(gettext_noop("several conversations, one per line: check one at a time"))
        [parsed] = conversations
        return _page(request, form, reports.report_on_request(parsed), given=_indented(parsed.body))
    except reports.TooLong as error:
        form.add_error(None, str(error))
    except NotAConversation as error:
        form.add_error(None, gettext("Not a conversation: %(why)s.") % {"why": worded(error.lazy_text)})
    return _page(request, form, status=422)


def _lint_session(request: HttpRequest, name: str) -> HttpResponse:
    session = session_or_404(request.user, name)
    try:
        report = reports.report_on(session)
    except reports.TooLong as error:
        return _page(request, LintForm(), session=session, problem=str(error), status=422)
    entries = [entry_view(entry) for entry in full_view(snapshot(session), ContextOptions(max_turns=None))]
    return _page(request, LintForm(), report, given=_indented(entries), session=session)


def _page(
    request: HttpRequest, form: LintForm, report: LintReport | None = None, *, status: int = 200, **shown: Any
) -> HttpResponse:
    sessions = sessions_owned_by(request.user).order_by("-last_activity_at").only("id", "title")[:SESSIONS]
    verdicts = [_shown(verdict) for verdict in report.verdicts] if report else []
    worst = next((shown for shown in verdicts if shown["verdict"].is_rejected), verdicts[0] if verdicts else None)
    context = {
        "form": form,
        "report": report,
        "language": NAMES.get(report.language, "") if report else "",
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
