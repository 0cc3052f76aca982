"""What is done to the sessions that were ticked on /history/: archived, deleted, and brought back.

Beside the rail's own verbs, because whoever is being answered in a deleted session has to be stopped. One archives
one's own; staff with the right to delete do so with other people's, too, and say why first. Sessions that somebody may
not touch are left out without a word: from here nobody learns that they exist.
"""

from __future__ import annotations

from collections.abc import Iterable

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from history.access.permissions import Purpose, sessions_for
from history.access.reason_field import ReasonField
from history.access.reasons import is_own
from history.models import Session
from history.pages.browse import just_deleted_by, note_archiving
from history.retention import UnderHold
from history.sessions import actions
from relay.pages.sidebar.views import MOST_AT_ONCE, back, bring_back, picked


class WhyForm(forms.Form):
    reason = ReasonField(
        label=_("Why do you delete it?"),
        help_text=_("It is kept in the audit chain."),
    )


@login_required
@require_POST
def delete_many(request: HttpRequest) -> HttpResponse:
    sessions = list(sessions_for(request.user, Purpose.DELETE).filter(pk__in=picked(request)).select_related("owner"))
    others = [session for session in sessions if not is_own(request.user, session)]
    form = WhyForm(request.POST if "reason" in request.POST else None)
    if others and not form.is_valid():
        return _ask_why(request, sessions, form)
    _delete_each(request, sessions, reason=form.cleaned_data["reason"] if others else "")
    _note_rest(request)
    return back(request, otherwise="history:browse")


def _ask_why(request: HttpRequest, sessions: list[Session], form: WhyForm) -> HttpResponse:
    context = {"sessions": sessions, "form": form, "next": back(request, otherwise="history:browse")["Location"]}
    return render(request, "history/browse/delete.html", context, status=422 if form.is_bound else 200)


def _note_rest(request: HttpRequest) -> None:
    """Say how many of the selected sessions are beyond the limit of one request."""
    if (rest := len(request.POST.getlist("session")) - MOST_AT_ONCE) > 0:
        text = ngettext(
            "%(rest)d selected session is unchanged: at most %(most)d are changed at once. Repeat for the rest.",
            "%(rest)d selected sessions are unchanged: at most %(most)d are changed at once. Repeat for the rest.",
            rest,
        )
        messages.warning(request, text % {"rest": rest, "most": MOST_AT_ONCE})


def _delete_each(request: HttpRequest, sessions: Iterable[Session], *, reason: str) -> None:
    for session in sessions:
        try:
            actions.delete(session, by=request.user, reason=reason)
        except UnderHold:
            title = session.title or gettext("Untitled")
            messages.warning(request, gettext("Under hold, and left alone: %(title)s") % {"title": title})


@login_required
@require_POST
def undelete_all(request: HttpRequest) -> HttpResponse:
    for session in just_deleted_by(request.user):
        bring_back(session, by=request.user)
    return back(request, otherwise="history:browse")


@login_required
@require_POST
def archive_many(request: HttpRequest, *, archived: bool) -> HttpResponse:
    """Archive or unarchive what was ticked, or undo that (`undo`)."""
    sessions = sessions_for(request.user, Purpose.WRITE).filter(pk__in=picked(request), archived_at__isnull=archived)
    changed = []
    for session in sessions:
        actions.change(session, archived=archived)
        changed.append(str(session.pk))
    note_archiving(request.session, () if "undo" in request.POST else changed, archived=archived)
    _note_rest(request)
    return back(request, otherwise="history:browse")
