"""Calls to models, as far as they are no text: times, ends, tokens and costs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _

from history.access.permissions import Purpose, can_access_others, rows_for
from history.admin.looking import LookingAdmin, recent
from history.models import Exchange
from history.templatetags.reading import dollars, duration, end_words, recognised, thousands
from history.transcripts.exchange_facts import facts_of

TEXTS = ("partial", "inputs", "metadata", "error", "session__metadata")


@admin.register(Exchange)
class ExchangeAdmin(LookingAdmin[Exchange]):
    """What was said is in the messages; of the answer so far and of the inputs nothing is shown here.

    How a call ended and what it took stands first in the list: a narrow window shows the beginning of each row.
    """

    list_display = (
        "started",
        "end_reason",
        "status_code",
        "shown_cost",
        "took",
        "tokens",
        "asked_by",
        "model",
        "shown_session",
        "provider",
        "owner",
    )
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
        (_("Times"), {"fields": ("started_in_full", "ended_in_full", "took", "stop_requested_at", "ended_how")}),
        (
            _("Call"),
            {"fields": ("path", "helper", "attempts", "status_code", "tokens", "usage", "estimated", "shown_cost")},
        ),
        (_("Relay"), {"fields": ("program", "upstreams", "earlier_tries", "translated_to", "not_carried")}),
        (_("Request"), {"fields": ("after", "history_version", "renderer_version", "request_hash", "recognised")}),
    )
    readonly_fields = (
        *("shown_session", "recognised", "started_in_full", "ended_in_full", "took", "ended_how", "path", "helper"),
        *("tokens", "estimated", "shown_cost", "program", "upstreams", "earlier_tries", "translated_to", "not_carried"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Exchange]:
        """Also those of which no session was kept: to whom everybody's belong, they belong too."""
        return rows_for(request.user, Purpose.LIST, Exchange.objects.defer(*TEXTS)).order_by("-started_at", "-id")

    def get_fieldsets(self, request: HttpRequest, obj: Exchange | None = None) -> Any:
        """When it was last known to live, until it has ended; of a relayed call the journal tells that, not the row."""
        if obj is None or obj.ended_at is not None or obj.heartbeat_at > timezone.now():
            return self.fieldsets
        first, (times, shown), *rest = self.fieldsets
        return (first, (times, {"fields": (*shown["fields"], "heartbeat_at")}), *rest)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Exchange | None = None) -> bool:
        return can_access_others(request.user, Purpose.LIST)

    # When.

    @admin.display(description=_("started"))
    def started(self, exchange: Exchange) -> str:
        return f"{timezone.localtime(exchange.started_at):%Y-%m-%d %H:%M:%S}"

    @admin.display(description=_("started"))
    def started_in_full(self, exchange: Exchange) -> str:
        return to_the_second(exchange.started_at)

    @admin.display(description=_("ended"))
    def ended_in_full(self, exchange: Exchange) -> str:
        return to_the_second(exchange.ended_at) if exchange.ended_at else "–"

    @admin.display(description=_("duration"))
    def took(self, exchange: Exchange) -> str:
        if exchange.ended_at is None:
            return "–"
        return duration((exchange.ended_at - exchange.started_at).total_seconds())

    @admin.display(description=_("end reason"))
    def ended_how(self, exchange: Exchange) -> str:
        """By the name that lists, filters and the API have for it, and in words."""
        return ": ".join(filter(None, (exchange.end_reason, end_words(exchange.end_reason)))) or "–"

    # What it took.

    @admin.display(description=_("tokens"))
    def tokens(self, exchange: Exchange) -> str:
        """Read and written, as far as anybody has counted."""
        read, written = (exchange.usage.get(name) for name in ("input_tokens", "output_tokens"))
        return f"{thousands(read or 0)} + {thousands(written or 0)}" if read or written else "–"

    @admin.display(description=_("tokens estimated"))
    def estimated(self, exchange: Exchange) -> str:
        """Only calls of our own are estimated before they are made."""
        return thousands(exchange.estimated_tokens) if exchange.estimated_tokens else "–"

    @admin.display(description=_("cost"))
    def shown_cost(self, exchange: Exchange) -> str:
        return dollars(exchange.cost)

    # Whose it was, and what for.

    @admin.display(description=_("API key"))
    def asked_by(self, exchange: Exchange) -> str:
        return exchange.api_key.name if exchange.api_key else "–"

    @admin.display(description=_("path"))
    def path(self, exchange: Exchange) -> str:
        return str(exchange.metadata.get("path", "")) or "–"

    @admin.display(description=_("errand of the program"))
    def helper(self, exchange: Exchange) -> str:
        """A title, a summary: what a program asks beside its conversation."""
        return str(exchange.metadata.get("helper", "")) or "–"

    # How the relay carried it.

    @admin.display(description=_("program"))
    def program(self, exchange: Exchange) -> str:
        return str(exchange.metadata.get("client", "")) or "–"

    @admin.display(description=_("providers tried"))
    def upstreams(self, exchange: Exchange) -> str:
        tried = facts_of(exchange).get("upstream", ())
        return ", ".join(f"{one.get('provider', '')} {one.get('status') or '–'}" for one in tried) or "–"

    @admin.display(description=_("earlier tries"))
    def earlier_tries(self, exchange: Exchange) -> str:
        """A client's own, which were answered under other ids."""
        lines = ((_try_in_words(one),) for one in facts_of(exchange).get("retried", ()))
        return format_html_join(mark_safe("<br>"), "{}", lines) or "–"

    @admin.display(description=_("translated to"))
    def translated_to(self, exchange: Exchange) -> str:
        return str(exchange.metadata.get("translated_to", "")) or "–"

    @admin.display(description=_("not carried"))
    def not_carried(self, exchange: Exchange) -> str:
        return str(exchange.metadata.get("not_carried", "")) or "–"

    @admin.display(description=_("recognised by"))
    def recognised(self, exchange: Exchange) -> str:
        return recognised(str(exchange.metadata.get("recognised_by", ""))) or "–"

    @admin.display(description=_("session"))
    def shown_session(self, exchange: Exchange) -> str:
        if exchange.session is None:
            return "–"
        address = reverse("admin:history_session_change", args=[exchange.session.pk])
        return format_html('<a href="{}">{}</a>', address, exchange.session)


def _try_in_words(one: Mapping[str, Any]) -> str:
    at = to_the_second(datetime.fromisoformat(one["at"])) if "at" in one else ""
    ended = " ".join(str(one[name]) for name in ("end_reason", "status") if one.get(name))
    return ", ".join(filter(None, (at, ended, one.get("exchange"))))


def to_the_second(time: datetime) -> str:
    local = timezone.localtime(time)
    return f"{date_format(local, 'DATE_FORMAT')} {local:%H:%M:%S} ({timezone.get_current_timezone_name()})"
