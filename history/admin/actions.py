"""What staff do with several sessions at once: each asks for its own right and for a reason, and is audited.

An action is chosen in the list, then a page says what it will mean and asks why, then it is done session by session by
those who do such things anyway: `retention` and `changes`. What cannot be done is counted and said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from history import retention
from history.access import audit
from history.access.permissions import Purpose, can_access_others, sessions_for
from history.access.reason_field import ReasonField
from history.db.transactions import writing
from history.errors import HistoryError
from history.exporting import Selection, begin
from history.formats.exporters import EXPORTERS
from history.models import Exchange, Session, ShareLink
from history.sessions import actions as changes

MOST_AT_ONCE = 500

Do = Callable[[Session, Any, str], bool]


class WhyForm(forms.Form):
    reason = ReasonField(
        label=_("Why?"),
        help_text=_("It is kept in the audit chain."),
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
    )


class AdminExportForm(WhyForm):
    format = forms.ChoiceField(
        label=_("Format"), choices=[(name, exporter.label) for name, exporter in EXPORTERS.items()]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One thing to do. `do` says whether there was anything to do, or raises; an export has none: it is an answer."""

    name: str
    words: Any
    meaning: Any
    purpose: Purpose
    do: Do | None = None
    form: type[WhyForm] = WhyForm
    is_grave: bool = False


def _delete(session: Session, actor: Any, reason: str) -> bool:
    """Here even one's own stays while it is held: whoever acts as staff sees it marked, and can release it first."""
    if session.hold:
        raise retention.UnderHold(f"session {session.pk} is under hold: release it first")
    return changes.delete(session, by=actor, reason=reason)


def _archive(session: Session, actor: Any, reason: str) -> bool:
    if session.archived_at:
        return False
    with writing():
        changes.change(session, archived=True)
        audit.record("archive", actor=actor.pk, session=session.pk, reason=reason)
    return True


HOLD = Deed(
    name="hold",
    words=_("Hold"),
    meaning=_(
        "Held sessions neither expire nor can they be erased. When their owners delete them, those who may hold still "
        "see them."
    ),
    do=lambda session, actor, reason: retention.hold(session, actor=actor, reason=reason),
    purpose=Purpose.HOLD,
)
RELEASE = Deed(
    name="release",
    words=_("Release"),
    meaning=_("The rules apply again: what has expired or was deleted meanwhile goes with the next purge."),
    do=lambda session, actor, reason: retention.release(session, actor=actor, reason=reason),
    purpose=Purpose.HOLD,
)
ARCHIVE = Deed(
    name="archive",
    words=_("Archive"),
    meaning=_("They leave the lists of their owners, who can bring them back. Nothing is removed."),
    do=_archive,
    purpose=Purpose.LIST,
)
DELETE = Deed(
    name="delete",
    words=_("Delete"),
    meaning=_("They disappear for all users now, and are removed when the trash is emptied."),
    do=_delete,
    purpose=Purpose.DELETE,
    is_grave=True,
)
EXPORT = Deed(
    name="export",
    words=_("Export"),
    meaning=_("One file, or an archive of one file for each session. Owners see who took their sessions out, and why."),
    purpose=Purpose.EXPORT,
    form=AdminExportForm,
)


class SessionActions(admin.ModelAdmin[Session]):
    """The actions of the list of sessions, each for those who may."""

    actions = ("export_chosen", "hold_chosen", "release_chosen", "archive_chosen", "delete_chosen")

    @admin.action(description=_("Export selected sessions"), permissions=["export"])
    def export_chosen(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponseBase | None:
        return self._ask_or_do(request, queryset, EXPORT)

    @admin.action(description=_("Hold selected sessions"), permissions=["hold"])
    def hold_chosen(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponseBase | None:
        return self._ask_or_do(request, queryset, HOLD)

    @admin.action(description=_("Release selected sessions"), permissions=["hold"])
    def release_chosen(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponseBase | None:
        return self._ask_or_do(request, queryset, RELEASE)

    @admin.action(description=_("Archive selected sessions"), permissions=["archive"])
    def archive_chosen(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponseBase | None:
        return self._ask_or_do(request, queryset, ARCHIVE)

    @admin.action(description=_("Delete selected sessions"), permissions=["discard"])
    def delete_chosen(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponseBase | None:
        return self._ask_or_do(request, queryset, DELETE)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return can_access_others(request.user, Purpose.EXPORT)

    def has_hold_permission(self, request: HttpRequest) -> bool:
        return can_access_others(request.user, Purpose.HOLD)

    def has_discard_permission(self, request: HttpRequest) -> bool:
        """Not Django's own deletion, which would take rows one by one and past the trash."""
        return can_access_others(request.user, Purpose.DELETE)

    def has_archive_permission(self, request: HttpRequest) -> bool:
        may_list = can_access_others(request.user, Purpose.LIST)
        return may_list and request.user.has_perm("history.change_session")

    def _ask_or_do(self, request: HttpRequest, queryset: QuerySet[Session], deed: Deed) -> HttpResponseBase | None:
        ids = list(queryset.order_by().values_list("pk", flat=True)[: MOST_AT_ONCE + 1])
        if len(ids) > MOST_AT_ONCE:
            told = gettext("At most %(most)s sessions at once: narrow the list down.") % {"most": MOST_AT_ONCE}
            self.message_user(request, told, messages.ERROR)
            return None
        sessions = sessions_for(request.user, deed.purpose).filter(pk__in=ids).select_related("owner")
        form = deed.form(request.POST if "apply" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, sessions, deed, form)
        if deed.do is None:
            return _exported(request, sessions, **form.cleaned_data)
        self._do(request, sessions, deed.do, deed.words, reason=form.cleaned_data["reason"])
        return None

    def _ask(self, request: HttpRequest, sessions: QuerySet[Session], deed: Deed, form: WhyForm) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": deed.words,
            "opts": self.opts,
            "deed": deed,
            "sessions": sessions,
            "counts": counts_of(sessions) if deed.is_grave else (),
            "form": form,
            "action": f"{deed.name}_chosen",
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        status = 422 if form.is_bound else 200
        return TemplateResponse(request, "admin/history/session/action.html", context, status=status)

    def _do(self, request: HttpRequest, sessions: QuerySet[Session], do: Do, words: Any, *, reason: str) -> None:
        done, refused = 0, []
        for session in sessions:
            try:
                done += do(session, request.user, reason)
            except HistoryError:
                refused.append(str(session))
        told = ngettext("%(deed)s: %(count)d session.", "%(deed)s: %(count)d sessions.", done)
        self.message_user(request, told % {"deed": words, "count": done}, messages.SUCCESS)
        if refused:
            told = gettext("Refused, because they are under hold: %(names)s") % {"names": ", ".join(refused)}
            self.message_user(request, told, messages.WARNING)


def _exported(request: HttpRequest, sessions: QuerySet[Session], *, format: str, reason: str) -> StreamingHttpResponse:
    """As a stream: an export has any size."""
    ids = tuple(sessions.order_by().values_list("pk", flat=True))
    export = begin(request.user, Selection(sessions=ids), format, reason=reason)
    disposition = content_disposition_header(as_attachment=True, filename=export.file_name) or "attachment"
    headers = {"Content-Disposition": disposition, "Cache-Control": "no-store"}
    return StreamingHttpResponse(aiter(export), content_type=export.content_type, headers=headers)


def counts_of(sessions: QuerySet[Session]) -> list[tuple[Any, int]]:
    """What goes, without what is held: from counters and indexes, however long the sessions are."""
    going = sessions.filter(hold=False)
    ids = list(going.values_list("pk", flat=True))
    sums = going.order_by().aggregate(messages=Sum("message_count"), calls=Sum("tool_call_count"))
    return [
        (_("sessions"), len(ids)),
        (_("messages"), sums["messages"] or 0),
        (_("tool calls"), sums["calls"] or 0),
        (_("exchanges"), Exchange.objects.filter(session__in=ids).count()),
        (_("share links"), ShareLink.objects.filter(session__in=ids).count()),
        (_("under hold, and kept"), sessions.filter(hold=True).count()),
    ]
