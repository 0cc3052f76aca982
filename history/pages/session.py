"""Pages of one session: an entry in full, the timeline, and the form that asks for a reason to read it.

Views look sessions up here, call `history.access.reasons` and let its errors pass. The middleware answers them, the
same for every page.
"""

import re
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRedirect

from history.access.permissions import Purpose, Viewer, can_access, sessions_for
from history.access.reasons import NotPermitted, ReasonField, ReasonNeeded, find_opened, is_own
from history.db.packing import clean
from history.entries import ModelInput, entry_to_json
from history.errors import NoSuchEntry
from history.http import HtmxRequest, is_own_url, user_form, user_page
from history.models import Message, Session
from history.record.selectors import entries_of
from history.text import whole_number
from history.transcripts.page import Transcript, TranscriptPosition, read_page
from history.transcripts.previews import preview
from history.transcripts.timeline import timeline_of

LARGEST = 2**53
DEEPEST = 8
WHOLE_CHARS = 1_000_000  # a longer text is not put into a page; it can be loaded by itself
# Texts that a page renders as Markdown. Arguments and results of tools are shown as they are.
_PROSE = re.compile(r"parts\.\d+\.text|plan|instruction|content|summary")


def session_or_404(viewer: Viewer, session_id: UUID | str) -> Session:
    """A session to read. `OpeningMiddleware` answers viewers who may only list it or have to give a reason."""
    session = find_opened(viewer, session_id)
    if session is None:
        raise Http404
    return session


def message_or_404(session: Session, seq: int) -> Message:
    return get_object_or_404(Message.objects.at(session, min(seq, LARGEST)))


def transcript_or_404(session: Session, values: QueryDict) -> Transcript:
    numbers: dict[str, Any] = {name: whole_number(values.get(name)) for name in ("before", "after", "at", "leaf")}
    try:
        return read_page(session, TranscriptPosition(**numbers, internal=values.get("internal") == "1"))
    except NoSuchEntry as error:
        raise Http404 from error


@login_required
@require_safe
def whole_entry(request: HtmxRequest, session_id: UUID, seq: int) -> HttpResponse:
    """One entry in full, as JSON. `?text=results.0.parts.1.text` is one text of it, `?as=text` is the text to copy."""
    session = session_or_404(request.user, session_id)
    entry = entries_of([message_or_404(session, seq)])[0]
    if request.GET.get("as") == "text":
        return _plain(entry.text)
    if "text" not in request.GET:
        return JsonResponse(entry_to_json(entry), json_dumps_params={"indent": 2})
    path = request.GET["text"]
    text = _text_at(entry_to_json(entry), path)
    if not request.htmx:
        return _plain(text)
    context = {"session": session, "seq": seq, "cut": preview(clean(text), WHOLE_CHARS), "text_path": path}
    if not _PROSE.fullmatch(path):
        return render(request, "history/_output.html", context)
    return render(
        request, "history/_message_text.html" if isinstance(entry, ModelInput) else "history/_prose.html", context
    )


def _plain(text: str) -> HttpResponse:
    return HttpResponse(clean(text), content_type="text/plain; charset=utf-8")


def _text_at(value: object, path: str) -> str:
    for step in path.split(".")[:DEEPEST]:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit():
            value = next(iter(value[int(step) :]), None)
        else:
            raise Http404
    if not isinstance(value, str):
        raise Http404
    return value


@user_page
def timeline(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Names and times without texts: for all viewers who may list the session."""
    session = get_object_or_404(sessions_for(request.user, Purpose.LIST), pk=session_id)
    context = {"session": session, "timeline": timeline_of(session, before=whole_number(request.GET.get("before")))}
    return render(request, "history/timeline/page.html", context)


class ReasonForm(forms.Form):
    reason = ReasonField(
        label=_("Reason"),
        help_text=_("The owner sees your name, the time and this reason. You can read the session for an hour."),
    )
    next = forms.CharField(required=False, widget=forms.HiddenInput)


@user_form
def open_session(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Ask for a reason, then redirect to the page that was wanted."""
    session = get_object_or_404(sessions_for(request.user, Purpose.LIST), pk=session_id)
    if not can_access(request.user, Purpose.READ, session):
        raise NotPermitted("no permission to read this session")
    if is_own(request.user, session):
        return redirect(session)
    if request.method != "POST":
        return ask(request, session, wanted=request.GET.get("next", ""))
    form = ReasonForm(request.POST)
    if not form.is_valid():
        return ask(request, session, form=form, status=422)
    find_opened(request.user, session.pk, reason=form.cleaned_data["reason"])
    wanted = form.cleaned_data["next"]
    return HttpResponseRedirect(wanted if is_own_url(request, wanted) else session.get_absolute_url())


def ask(
    request: HttpRequest, session: Session, *, wanted: str = "", form: ReasonForm | None = None, status: int = 200
) -> HttpResponse:
    form = form or ReasonForm(initial={"next": wanted})
    session.hide_title()
    return render(request, "history/reason.html", {"session": session, "form": form}, status=status)


class OpeningMiddleware(MiddlewareMixin):
    """Answer refusals of `history.access.reasons` with the form, or with a page that names the missing permission."""

    def process_exception(self, request: HtmxRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, NotPermitted):
            return render(request, "history/not_permitted.html", status=403)
        if isinstance(error, ReasonNeeded) and error.session:
            return _ask_first(request, Session.objects.get(pk=error.session))
        return None


def _ask_first(request: HtmxRequest, session: Session) -> HttpResponse:
    if request.htmx:
        # The page was opened more than an hour ago: reload all of it.
        here = urlsplit(request.htmx.current_url or "")
        form = reverse("history:open", args=[session.pk])
        url = f"{form}?{urlencode({'next': f'{here.path}?{here.query}'})}"
        return HttpResponseClientRedirect(url, status=403)
    return ask(request, session, wanted=request.get_full_path() if request.method == "GET" else "", status=403)
