"""Admin of sessions: the list with its actions, the page of one, and its transcript."""

from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django_stubs_ext import StrOrPromise

from history.access.permissions import Purpose, can_access, can_access_others, sessions_for
from history.admin.actions import FORK, SessionActions
from history.admin.base import LOOKED_AT, LongListAdmin, recent
from history.models import ApiKey, Session, ToolCall
from history.pages.session import session_or_404, transcript_or_404
from history.record.listing import ids_titled, sessions_beginning_with
from history.search.finding import find_newest
from history.templatetags.transcripts import recognition_label
from history.text import whole_number

TITLES = 1_000  # titles have no index: this many of the newest are searched
CALLS = 50
COUNTERS = (*Session.COUNTERS, "cost", "version", "head", "trimmed_through")
TIMES = ("created_at", "last_activity_at", "stored_at", "pinned_at", "archived_at", "hidden_at", "hold", "expires_at")


class ByOwner(admin.SimpleListFilter):
    title = _("owner")
    parameter_name = "owner"
    column = "owner_id"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        people = get_user_model().objects.order_by("username").values_list("pk", "username")
        return [(str(pk), name) for pk, name in people[:LOOKED_AT]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        return queryset.filter(**{self.column: whole_number(self.value()) or 0}) if self.value() else queryset


class ByKey(ByOwner):
    title = _("API key")
    parameter_name = "key"
    column = "api_key_id"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(str(key.pk), str(key)) for key in ApiKey.objects.order_by("name", "pk")[:LOOKED_AT]]


class ByState(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"
    states: ClassVar[dict[str, dict[str, object]]] = {
        "held": {"hold": True},
        "deleted": {"hold": True, "state": Session.State.DELETED},
        "archived": {"archived_at__isnull": False},
    }

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, StrOrPromise]]:
        words: list[tuple[str, StrOrPromise]] = [("held", _("under hold")), ("archived", _("archived"))]
        sees_held = can_access_others(request.user, Purpose.HOLD)
        return [*words, ("deleted", _("deleted by its owner, under hold"))] if sees_held else words

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        return queryset.filter(**self.states.get(self.value() or "", {}))


@admin.register(Session)
class SessionAdmin(SessionActions, LongListAdmin[Session]):
    list_display = ("shown_title", "owner", "source", "model", "shown_messages", "shown_state", "last_activity_at")
    list_select_related = ("owner", "api_key")
    list_filter = (
        *("source", ByState, ByOwner, ByKey),
        *(recent("client", _("client")), recent("agent", _("agent")), recent("model", _("model"))),
    )
    date_hierarchy = "last_activity_at"
    search_fields = ("title",)
    search_help_text = _("Session id or words of a title. Also searches sessions that you may read.")
    change_form_template = "admin/history/session/change_form.html"
    fieldsets = (
        (None, {"fields": ("id", "title", "owner", "api_key", "source", "client", "agent", "workspace", "model")}),
        (_("Origin"), {"fields": ("recognised", "parent", "parent_call", "forked_from", "forked_at")}),
        (_("Counters"), {"fields": COUNTERS}),
        (_("Times"), {"fields": TIMES}),
    )
    readonly_fields = ("recognised",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        return sessions_for(request.user, Purpose.LIST).defer("metadata").order_by("-last_activity_at", "-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        if not search_term.strip():
            return queryset, False
        ids = {session.pk for session in sessions_beginning_with(queryset, search_term.strip())}
        ids |= set(ids_titled(self.get_queryset(request), search_term, among=TITLES))
        if can_access_others(request.user, Purpose.READ):
            ids |= set(find_newest(request.user, search_term).values())
        return queryset.filter(pk__in=ids), False

    @admin.display(description=_("title"))
    def shown_title(self, session: Session) -> str:
        return session.title or str(_("Untitled"))

    shown_messages = admin.display(lambda _self, session: session.message_count, description=_("messages"))

    @admin.display(description=_("state"))
    def shown_state(self, session: Session) -> str:
        words = [_("under hold")] if session.hold else []
        words += [_("deleted by its owner")] if session.hidden_at else []
        words += [_("archived")] if session.archived_at else []
        return format_html("<strong>{}</strong>", ", ".join(map(str, words))) if words else ""

    @admin.display(description=_("recognised by"))
    def recognised(self, session: Session) -> str:
        return recognition_label(session.recognised_by) or "–"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.transcript)
        return [path("<uuid:session_id>/transcript/", view, name="history_session_transcript"), *super().get_urls()]

    def transcript(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        """A session of another user needs a reason."""
        if not self.has_view_permission(request):
            raise Http404
        session = session_or_404(request.user, session_id)
        context = {
            **self.admin_site.each_context(request),
            "title": self.shown_title(session),
            "opts": self.opts,
            "session": session,
            "transcript": transcript_or_404(session, request.GET),
        }
        return TemplateResponse(request, "admin/history/session/transcript.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context: dict[str, Any] = {}
        if session := self.get_object(request, object_id):
            calls = ToolCall.objects.filter(session=session).order_by("-id").defer("arguments", "result", "error")
            context = {
                "calls": calls[:CALLS],
                "may_read": can_access(request.user, Purpose.READ, session),
                "may_fork": self.may(request, FORK),
                "may_see_audit": request.user.has_perm("history.view_auditevent"),
                "audit_address": f"{reverse('admin:history_auditevent_changelist')}?session={session.pk}",
            }
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})
