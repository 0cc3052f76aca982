"""Admin of the audit chain and of share links. The chain has ids; today's names are looked up."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from history.access.permissions import Purpose, rows_for
from history.admin.base import LongListAdmin, recent, session_link
from history.models import ApiKey, AuditEvent, ShareLink
from history.text import whole_number
from history.transcripts import share_links


@admin.register(AuditEvent)
class AuditEventAdmin(LongListAdmin[AuditEvent]):
    list_display = ("seq", "at", "action", "who", "shown_session", "reason")
    list_filter = (recent("action", _("action")),)
    more_lookups = ("session",)
    search_fields = ("action",)
    search_help_text = _("Session id, event number or username.")
    ordering = ("-seq",)
    fields = ("seq", "at", "action", "who", "actor", "key", "shown_session", "reason", "details", "shown_seal")
    readonly_fields = ("who", "shown_session", "shown_seal")

    def has_view_permission(self, request: HttpRequest, obj: AuditEvent | None = None) -> bool:
        return request.user.has_perm("history.view_auditevent")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEvent], search_term: str
    ) -> tuple[QuerySet[AuditEvent], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if (seq := whole_number(term)) is not None:
            return queryset.filter(seq=seq), False
        try:
            return queryset.filter(session=UUID(term)), False
        except ValueError:
            person = get_user_model().objects.filter(username=term).values_list("pk", flat=True).first()
            return (queryset.filter(actor=person) if person else queryset.none()), False

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        add_names(changelist.result_list)
        return changelist

    @admin.display(description=_("actor"))
    def who(self, event: Any) -> str:
        if not hasattr(event, "names"):
            add_names([event])
        return str(event.names)

    @admin.display(description=_("session"))
    def shown_session(self, event: AuditEvent) -> str:
        return session_link(event.session, str(event.session)[:8]) if event.session else "–"

    shown_seal = admin.display(lambda _self, event: str(event.seal.hex()), description=_("seal"))


def add_names(events: Iterable[Any]) -> None:
    """Add the names of actors by two queries for a page of events; the id if it no longer exists."""
    people = get_user_model().objects.in_bulk([event.actor for event in events if event.actor])
    keys = ApiKey.objects.in_bulk([event.key for event in events if event.key])
    for event in events:
        names = [str(people.get(event.actor, f"#{event.actor}"))] if event.actor else []
        names += [str(keys.get(event.key, f"key #{event.key}"))] if event.key else []
        event.names = ", ".join(names) or "–"


@admin.register(ShareLink)
class ShareLinkAdmin(LongListAdmin[ShareLink]):
    """The audit chain has who made a link. The link itself is not stored."""

    list_display = ("session", "follows", "views", "last_viewed_at", "created_at", "expires_at", "revoked_at")
    list_select_related = ("session",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    fields = ("session", "leaf", "follows", "views", "last_viewed_at", "created_at", "expires_at", "revoked_at")
    ordering = ("-created_at", "-pk")
    actions = ("revoke_chosen",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ShareLink]:
        return rows_for(request.user, Purpose.LIST, ShareLink.objects.all()).order_by("-created_at", "-pk")

    def has_view_permission(self, request: HttpRequest, obj: ShareLink | None = None) -> bool:
        return super().has_view_permission(request, obj) and request.user.has_perm("history.view_sharelink")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("history.change_sharelink")

    @admin.action(description=_("Revoke selected links"), permissions=["revoke"])
    def revoke_chosen(self, request: HttpRequest, queryset: QuerySet[ShareLink]) -> None:
        ended = sum(share_links.revoke(link, by=request.user) for link in queryset)
        text = ngettext("%(count)d link was revoked.", "%(count)d links were revoked.", ended)
        self.message_user(request, text % {"count": ended}, messages.SUCCESS)
