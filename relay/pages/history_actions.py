"""Archive, delete and restore: actions on sessions of `/history/` and the trash (`/history/deleted/`).

Users act on their own sessions. Staff with the delete permission also delete sessions of other users, with a reason.
Sessions without that permission are skipped silently, so that their ids reveal nothing.
"""

from datetime import timedelta

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_list_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from history.access.permissions import Purpose, sessions_for
from history.access.reasons import ReasonField, is_own
from history.http import user_action, user_page
from history.pages.browse.views import just_deleted_by, note_archiving
from history.retention import UnderHold
from history.sessions import actions
from relay.pages.sidebar.sessions import in_trash
from relay.pages.sidebar.views import MOST_AT_ONCE, redirect_back, restore_session, selected_ids

PAGE = 50


class DeleteReasonForm(forms.Form):
    reason = ReasonField(label=_("Reason"), help_text=_("Recorded in the audit log."))


@user_action
def delete_many(request: HttpRequest) -> HttpResponse:
    deletable = sessions_for(request.user, Purpose.DELETE).select_related("owner")
    sessions = list(deletable.filter(pk__in=selected_ids(request)))
    others = [session for session in sessions if not is_own(request.user, session)]
    form = DeleteReasonForm(request.POST if "reason" in request.POST else None)
    if others and not form.is_valid():
        back = redirect_back(request, otherwise="history:browse")["Location"]
        context = {"sessions": sessions, "form": form, "next": back}
        return render(request, "chat/delete_others.html", context, status=422 if form.is_bound else 200)
    for session in sessions:
        try:
            actions.delete(session, by=request.user, reason=form.cleaned_data["reason"] if others else "")
        except UnderHold:
            title = session.title or gettext("Untitled")
            messages.warning(request, gettext("Unchanged because of a hold: %(title)s") % {"title": title})
    _note_rest(request)
    return redirect_back(request, otherwise="history:browse")


def _note_rest(request: HttpRequest) -> None:
    if (rest := len(request.POST.getlist("session")) - MOST_AT_ONCE) > 0:
        text = ngettext(
            "%(rest)d selected session is unchanged: at most %(most)d are changed at once. Repeat for the rest.",
            "%(rest)d selected sessions are unchanged: at most %(most)d are changed at once. Repeat for the rest.",
            rest,
        )
        messages.warning(request, text % {"rest": rest, "most": MOST_AT_ONCE})


@user_action
def undelete_all(request: HttpRequest) -> HttpResponse:
    for session in just_deleted_by(request.user):
        restore_session(session, by=request.user)
    return redirect_back(request, otherwise="history:browse")


@user_action
def archive_many(request: HttpRequest, *, archived: bool) -> HttpResponse:
    """Archive or unarchive what was ticked, or undo that (`undo`)."""
    mine = sessions_for(request.user, Purpose.WRITE).filter(pk__in=selected_ids(request))
    sessions = list(mine.filter(archived_at__isnull=archived))
    for session in sessions:
        actions.change(session, archived=archived)
    changed = [] if "undo" in request.POST else [str(session.pk) for session in sessions]
    note_archiving(request.session, changed, archived=archived)
    _note_rest(request)
    return redirect_back(request, otherwise="history:browse")


@user_page
def deleted(request: HttpRequest) -> HttpResponse:
    page = Paginator(in_trash(request.user), PAGE).get_page(request.GET.get("page"))
    hours = timedelta(hours=settings.PARLEY_TRASH_HOURS)
    rows = [
        {"session": session, "removed_at": session.hidden_at + hours if session.hidden_at else timezone.now()}
        for session in page
    ]
    context = {"page": page, "rows": rows, "hours": settings.PARLEY_TRASH_HOURS}
    return render(request, "chat/deleted.html", context)


@user_action
def restore(request: HttpRequest) -> HttpResponse:
    for session in get_list_or_404(in_trash(request.user), pk__in=selected_ids(request)):
        restore_session(session, by=request.user)
        title = session.title or gettext("Untitled")
        messages.success(request, gettext("“%(title)s” is restored.") % {"title": title})
    return redirect("relay:deleted")
