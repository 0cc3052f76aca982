"""Fork of a session by staff: the admin page that copies it for its owner.

Staff use it where the relay filed calls under the wrong session. No entry of the original moves.
"""

from __future__ import annotations

from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from history.access import audit
from history.access.permissions import Purpose, can_access_others, find
from history.admin.actions import WhyForm
from history.errors import HistoryError, NoSuchEntry
from history.models import Session
from history.record import recorder


class ForkForm(WhyForm):
    at = forms.IntegerField(
        label=_("After entry"),
        required=False,
        min_value=1,
        help_text=_("The number of the last entry that the copy has. Empty: all that is on the current path."),
    )


# Texts for the template of session actions.
PAGE = {
    "words": _("Fork"),
    "meaning": _("Its owner gets a new session that begins as a copy of this one. The two share nothing afterwards."),
}


class SessionForks(admin.ModelAdmin[Session]):
    """The page `fork/` below a session, for staff who may change sessions."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.fork)
        return [path("<uuid:session_id>/fork/", view, name="history_session_fork"), *super().get_urls()]

    def has_fork_permission(self, request: HttpRequest) -> bool:
        return can_access_others(request.user, Purpose.LIST) and request.user.has_perm("history.change_session")

    def fork(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        session = find(request.user, session_id, Purpose.LIST)
        if session is None or not self.has_fork_permission(request):
            raise Http404
        form = ForkForm(request.POST or None)
        if form.is_valid():
            try:
                return self._fork(request, session, form.cleaned_data["at"], form.cleaned_data["reason"])
            except NoSuchEntry:
                form.add_error("at", gettext("It has no such entry."))
            except HistoryError as error:
                form.add_error(None, str(error))
        context = {
            **self.admin_site.each_context(request),
            "title": PAGE["words"],
            "opts": self.opts,
            "deed": PAGE,
            "sessions": [session],
            "form": form,
            "action": "",
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        status = 422 if form.is_bound else 200
        return TemplateResponse(request, "admin/history/session/action.html", context, status=status)

    def _fork(self, request: HttpRequest, session: Session, at: int | None, reason: str) -> HttpResponse:
        copy = recorder.fork(session, at=at or session.head, owner=session.owner)
        audit.record("fork", actor=request.user.pk, session=session.pk, reason=reason, copy=str(copy.pk))
        self.message_user(request, gettext("This is the new session."), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:history_session_change", args=[copy.pk]))
