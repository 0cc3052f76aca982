"""Actions of staff on sessions: export, hold, release, archive, delete and fork, each with a permission and a reason.

A page explains the chosen action and asks for the reason. `retention` and `sessions.actions` do it session by session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, gettext_lazy as _, ngettext
from django_stubs_ext import StrPromise

from history import retention
from history.access import audit
from history.access.permissions import Purpose, can_access_others, find, sessions_for
from history.access.reasons import ReasonField
from history.db.transactions import writing
from history.errors import HistoryError, NoSuchEntry
from history.exporting import Selection, begin
from history.formats.writers import EXPORTERS
from history.http import download
from history.models import Exchange, Session, ShareLink
from history.record import recorder
from history.sessions import actions as changes

MOST_AT_ONCE = 500

User = AbstractBaseUser | AnonymousUser


class WhyForm(forms.Form):
    widget = forms.Textarea(attrs={"rows": 3, "cols": 60})
    reason = ReasonField(label=_("Reason"), help_text=_("Recorded in the audit log."), widget=widget)


class AdminExportForm(WhyForm):
    format = forms.ChoiceField(label=_("Format"), choices=[(name, one.label) for name, one in EXPORTERS.items()])


class ForkForm(WhyForm):
    at = forms.IntegerField(
        label=_("After entry"),
        required=False,
        min_value=1,
        help_text=_("Number of the last entry to copy. Empty: everything on the current path."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAction:
    """`run` returns whether anything changed, or raises. Export and fork have none: they answer with a response."""

    name: str
    words: StrPromise
    label: StrPromise  # in the list of actions
    meaning: StrPromise
    purpose: Purpose
    run: Callable[..., bool] | None = None
    form: type[WhyForm] = WhyForm
    is_grave: bool = False


def _delete(session: Session, *, actor: User, reason: str) -> bool:
    """A held session is refused, also the actor's own: staff see the hold and can release it first."""
    if session.hold:
        raise retention.UnderHold(f"session {session.pk} is under hold: release it first")
    return changes.delete(session, by=actor, reason=reason)


def _archive(session: Session, *, actor: User, reason: str) -> bool:
    if session.archived_at:
        return False
    with writing():
        changes.change(session, archived=True)
        audit.record("archive", actor=actor.pk, session=session.pk, reason=reason)
    return True


HOLD = SessionAction(
    name="hold",
    words=_("Hold"),
    label=_("Hold selected sessions"),
    meaning=_(
        "Held sessions do not expire and cannot be erased. Users with the hold permission still see them "
        "after their owners delete them."
    ),
    run=retention.hold,
    purpose=Purpose.HOLD,
)
RELEASE = SessionAction(
    name="release",
    words=_("Release"),
    label=_("Release selected sessions"),
    meaning=_(
        "The retention rules apply again. The next purge removes sessions that expired or were deleted in the meantime."
    ),
    run=retention.release,
    purpose=Purpose.HOLD,
)
ARCHIVE = SessionAction(
    name="archive",
    words=_("Archive"),
    label=_("Archive selected sessions"),
    meaning=_("Sessions leave the lists of their owners, who can restore them. Nothing is removed."),
    run=_archive,
    purpose=Purpose.LIST,
)
DELETE = SessionAction(
    name="delete",
    words=_("Delete"),
    label=_("Delete selected sessions"),
    meaning=_("Sessions are hidden from all users now and removed when the trash is emptied."),
    run=_delete,
    purpose=Purpose.DELETE,
    is_grave=True,
)
EXPORT = SessionAction(
    name="export",
    words=_("Export"),
    label=_("Export selected sessions"),
    meaning=_("One file, or an archive with one file per session. Owners see who exported their sessions, and why."),
    purpose=Purpose.EXPORT,
    form=AdminExportForm,
)
FORK = SessionAction(
    name="fork",
    words=_("Fork"),
    label=_("Fork"),
    meaning=_("The owner gets a new session that starts as a copy of this one. Later changes affect only one of them."),
    purpose=Purpose.LIST,
    form=ForkForm,
)


class SessionActions(admin.ModelAdmin[Session]):
    """Staff fork a session where the relay filed calls under the wrong one. No entry of the original moves."""

    def may(self, request: HttpRequest, action: SessionAction) -> bool:
        """To archive or fork, which have no purpose of their own, staff need the permission to change sessions."""
        is_allowed = can_access_others(request.user, action.purpose)
        return is_allowed and (action.purpose is not Purpose.LIST or request.user.has_perm("history.change_session"))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without Django's own deletion, which would remove rows one by one and bypass the trash."""
        if IS_POPUP_VAR in request.GET:
            return {}
        return {
            f"{one.name}_chosen": (partial(SessionActions.ask_or_run, action=one), f"{one.name}_chosen", one.label)
            for one in (EXPORT, HOLD, RELEASE, ARCHIVE, DELETE)
            if self.may(request, one)
        }

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.fork)
        return [path("<uuid:session_id>/fork/", view, name="history_session_fork"), *super().get_urls()]

    def fork(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        session = find(request.user, session_id, Purpose.LIST)
        if session is None or not self.may(request, FORK):
            raise Http404
        form = ForkForm(request.POST or None)
        if form.is_valid():
            try:
                copy = recorder.fork(session, at=form.cleaned_data["at"] or session.head, owner=session.owner)
                reason = form.cleaned_data["reason"]
                audit.record("fork", actor=request.user.pk, session=session.pk, reason=reason, copy=str(copy.pk))
                self.message_user(request, gettext("Forked. This is the new session."), messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:history_session_change", args=[copy.pk]))
            except NoSuchEntry:
                form.add_error("at", gettext("This session has no entry with this number."))
            except HistoryError as error:
                form.add_error(None, str(error))
        return self._ask(request, [session], FORK, form)

    def ask_or_run(
        self, request: HttpRequest, queryset: QuerySet[Session], action: SessionAction
    ) -> HttpResponseBase | None:
        ids = list(queryset.order_by().values_list("pk", flat=True)[: MOST_AT_ONCE + 1])
        if len(ids) > MOST_AT_ONCE:
            text = gettext("At most %(most)s sessions at once. Narrow the list down.") % {"most": MOST_AT_ONCE}
            self.message_user(request, text, messages.ERROR)
            return None
        sessions = sessions_for(request.user, action.purpose).filter(pk__in=ids).select_related("owner")
        form = action.form(request.POST if "apply" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, sessions, action, form)
        if action.run is None:
            return _export(request, sessions, **form.cleaned_data)
        changed, refused = 0, []
        for session in sessions:
            try:
                changed += action.run(session, actor=request.user, reason=form.cleaned_data["reason"])
            except HistoryError:
                refused.append(str(session))
        text = ngettext("%(deed)s: %(count)d session.", "%(deed)s: %(count)d sessions.", changed)
        self.message_user(request, text % {"deed": action.words, "count": changed}, messages.SUCCESS)
        if refused:
            text = gettext("Refused because of a hold: %(names)s") % {"names": ", ".join(refused)}
            self.message_user(request, text, messages.WARNING)
        return None

    def _ask(
        self, request: HttpRequest, sessions: QuerySet[Session] | list[Session], action: SessionAction, form: WhyForm
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": action.words,
            "opts": self.opts,
            "deed": action,
            "sessions": sessions,
            "counts": counts_of(sessions) if action.is_grave and isinstance(sessions, QuerySet) else (),
            "form": form,
            "action": "" if action is FORK else f"{action.name}_chosen",
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        status = 422 if form.is_bound else 200
        return TemplateResponse(request, "admin/history/session/action.html", context, status=status)


def _export(request: HttpRequest, sessions: QuerySet[Session], *, format: str, reason: str) -> HttpResponseBase:
    selection = Selection(sessions=tuple(sessions.order_by().values_list("pk", flat=True)))
    response = download(begin(request.user, selection, format, reason=reason))
    response["Cache-Control"] = "no-store"
    return response


def counts_of(sessions: QuerySet[Session]) -> list[tuple[StrPromise, int]]:
    """What will be removed, without held sessions: from counters and indexes, however long the sessions are."""
    unheld = sessions.filter(hold=False)
    ids = list(unheld.values_list("pk", flat=True))
    sums = unheld.order_by().aggregate(messages=Sum("message_count"), calls=Sum("tool_call_count"))
    return [
        (_("sessions"), len(ids)),
        (_("messages"), sums["messages"] or 0),
        (_("tool calls"), sums["calls"] or 0),
        (_("exchanges"), Exchange.objects.filter(session__in=ids).count()),
        (_("share links"), ShareLink.objects.filter(session__in=ids).count()),
        (_("under hold, and kept"), sessions.filter(hold=True).count()),
    ]
