"""Calls to models, as far as they are no text: times, ends, tokens and costs."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from history.admin.looking import LookingAdmin, recent
from history.models import Exchange
from history.rights import Purpose, may_with_others, rows_for
from history.templatetags.reading import recognised

TEXTS = ("partial", "inputs", "metadata", "error", "session__metadata")


@admin.register(Exchange)
class ExchangeAdmin(LookingAdmin[Exchange]):
    """What was said is in the messages; of the answer so far and of the inputs nothing is shown here."""

    list_display = ("started_at", "owner", "shown_session", "provider", "model", "end_reason", "status_code", "cost")
    list_select_related = ("owner", "session", "api_key")
    list_filter = (
        recent("provider", _("provider")),
        recent("model", _("model")),
        recent("end_reason", _("end reason")),
        recent("agent", _("agent")),
    )
    date_hierarchy = "started_at"
    ordering = ("-started_at", "-id")
    fieldsets = (
        (None, {"fields": ("id", "shown_session", "owner", "api_key", "agent", "provider", "model", "dialect")}),
        (_("Times"), {"fields": ("started_at", "heartbeat_at", "stop_requested_at", "ended_at", "end_reason")}),
        (_("Call"), {"fields": ("attempts", "status_code", "usage", "estimated_tokens", "cost")}),
        (_("Request"), {"fields": ("after", "history_version", "renderer_version", "request_hash", "recognised")}),
    )
    readonly_fields = ("shown_session", "recognised")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Exchange]:
        """Also those of which no session was kept: to whom everybody's belong, they belong too."""
        return rows_for(request.user, Purpose.LIST, Exchange.objects.defer(*TEXTS)).order_by("-started_at", "-id")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Exchange | None = None) -> bool:
        return may_with_others(request.user, Purpose.LIST)

    @admin.display(description=_("recognised by"))
    def recognised(self, exchange: Exchange) -> str:
        return recognised(str(exchange.metadata.get("recognised_by", ""))) or "–"

    @admin.display(description=_("session"))
    def shown_session(self, exchange: Exchange) -> str:
        if exchange.session is None:
            return "–"
        address = reverse("admin:history_session_change", args=[exchange.session.pk])
        return format_html('<a href="{}">{}</a>', address, exchange.session)
