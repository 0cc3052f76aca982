"""Reasons for reading sessions of other users: the form, and the response to viewers who may not read one.

Views call `history.access.reasons` and let its errors pass. The middleware answers them, the same for every page.
"""

from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext_lazy as _
from django_htmx.http import HttpResponseClientRedirect

from history.access.permissions import Purpose, can_access, sessions_for
from history.access.reasons import NotPermitted, ReasonField, ReasonNeeded, find_opened, is_own
from history.http import HtmxRequest, is_own_url, user_form
from history.models import Session


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
