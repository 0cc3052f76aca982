"""Where the relay was wrong about which calls belong together: staff link two sessions, or fork one. Rows never move.

Both ask why and are audited, and both leave every entry where it is: a link is a column, a fork is a copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from history.access import audit
from history.access.permissions import Purpose, find, may_with_others
from history.admin.actions import WhyForm
from history.db.transactions import writing
from history.errors import CannotLink, HistoryError, NoSuchEntry
from history.models import Session
from history.record import recorder

_ID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")


class LinkForm(WhyForm):
    continues = forms.CharField(
        label=_("It continues"),
        required=False,
        help_text=_("The id or the address of a session of the same person. Empty: it continues none."),
    )

    def clean_continues(self) -> UUID | None:
        typed = self.cleaned_data["continues"]
        found = _ID.search(typed)
        if typed and found is None:
            raise ValidationError(_("That is neither an id nor the address of a session."))
        return UUID(found[0]) if found else None


class ForkForm(WhyForm):
    at = forms.IntegerField(
        label=_("After entry"),
        required=False,
        min_value=1,
        help_text=_("The number of the last entry that the copy has. Empty: all that is on the current path."),
    )


@dataclass(frozen=True, slots=True)
class LinkChange:
    words: Any
    meaning: Any
    form: type[WhyForm]


LINK = LinkChange(
    _("Link"),
    _("Two sessions are read as one transcript. No entry moves, and the link can be taken back."),
    LinkForm,
)
FORK = LinkChange(
    _("Fork"),
    _("Its owner gets a new session that begins as a copy of this one. The two share nothing afterwards."),
    ForkForm,
)


class SessionLinks(admin.ModelAdmin[Session]):
    """Two pages below that of a session, for those who may change sessions."""

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "history_session"
        return [
            path("<uuid:session_id>/link/", wrap(self.link), name=f"{name}_link"),
            path("<uuid:session_id>/fork/", wrap(self.fork), name=f"{name}_fork"),
            *super().get_urls(),
        ]

    def has_link_permission(self, request: HttpRequest) -> bool:
        return may_with_others(request.user, Purpose.LIST) and request.user.has_perm("history.change_session")

    def link(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        session = self._changeable(request, session_id)
        form = LinkForm(request.POST or None, initial={"continues": session.continues_id or ""})
        if form.is_valid():
            try:
                return self._linked(request, session, form.cleaned_data["continues"], form.cleaned_data["reason"])
            except CannotLink:
                form.add_error(
                    "continues",
                    gettext("Choose another session: this one belongs to another user, or continues this session."),
                )
        return self._asked_for(request, session, LINK, form)

    def fork(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        session = self._changeable(request, session_id)
        form = ForkForm(request.POST or None)
        if form.is_valid():
            try:
                return self._forked(request, session, form.cleaned_data["at"], form.cleaned_data["reason"])
            except NoSuchEntry:
                form.add_error("at", gettext("It has no such entry."))
            except HistoryError as error:
                form.add_error(None, str(error))
        return self._asked_for(request, session, FORK, form)

    def _changeable(self, request: HttpRequest, session_id: UUID) -> Session:
        session = find(request.user, session_id, Purpose.LIST)
        if session is None or not self.has_link_permission(request):
            raise Http404
        return session

    def _linked(self, request: HttpRequest, session: Session, target: UUID | None, reason: str) -> HttpResponse:
        to = find(request.user, target, Purpose.LIST) if target else None
        if target and to is None:
            raise CannotLink(f"there is no session {target}")
        with writing():
            recorder.link(session, to=to)
            audit.record("link", actor=request.user.pk, session=session.pk, reason=reason, continues=str(target or ""))
        told = gettext("It continues that session now.") if to else gettext("It continues no other session now.")
        self.message_user(request, told, messages.SUCCESS)
        return _page_of(session)

    def _forked(self, request: HttpRequest, session: Session, at: int | None, reason: str) -> HttpResponse:
        copy = recorder.fork(session, at=at or session.head, owner=session.owner)
        audit.record("fork", actor=request.user.pk, session=session.pk, reason=reason, copy=str(copy.pk))
        self.message_user(request, gettext("This is the new session."), messages.SUCCESS)
        return _page_of(copy)

    def _asked_for(self, request: HttpRequest, session: Session, change: LinkChange, form: WhyForm) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": change.words,
            "opts": self.opts,
            "deed": change,
            "sessions": [session],
            "form": form,
            "action": "",
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        status = 422 if form.is_bound else 200
        return TemplateResponse(request, "admin/history/session/action.html", context, status=status)


def _page_of(session: Session) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin:history_session_change", args=[session.pk]))
