"""Admin of exchanges (calls to models): times, ends, tokens and costs, but no texts."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from django_stubs_ext import StrPromise

from history.access.permissions import Purpose, rows_for
from history.admin.base import LongListAdmin, recent, session_link
from history.entries import JsonObject
from history.models import Exchange
from history.templatetags.reading import dollars, duration, end_words, recognised, thousands
from history.transcripts.previews import facts_of

TEXTS = ("partial", "inputs", "metadata", "error", "session__metadata")
CALL_FIELDS = ("path", "helper", "attempts", "status_code", "tokens", "usage", "estimated", "shown_cost")
DASH = "–"


def metadata_column(name: str, title: StrPromise) -> Callable[[object, Exchange], str]:
    return admin.display(lambda _self, exchange: str(exchange.metadata.get(name, "")) or DASH, description=title)


@admin.register(Exchange)
class ExchangeAdmin(LongListAdmin[Exchange]):
    """Texts are in the messages. End and cost come first: a narrow window shows the beginning of each row."""

    list_display = (
        "started", "end_reason", "status_code", "shown_cost", "took", "tokens",
        "asked_by", "model", "shown_session", "provider", "owner",
    )  # fmt: skip
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
        (_("Call"), {"fields": CALL_FIELDS}),
        (_("Relay"), {"fields": ("program", "upstreams", "earlier_tries", "translated_to", "not_carried")}),
        (_("Request"), {"fields": ("after", "history_version", "renderer_version", "request_hash", "recognised")}),
    )
    readonly_fields = (
        *("shown_session", "recognised", "started_in_full", "ended_in_full", "took", "ended_how", "path", "helper"),
        *("tokens", "estimated", "shown_cost", "program", "upstreams", "earlier_tries", "translated_to", "not_carried"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Exchange]:
        """Also exchanges without a session, for viewers who may list all sessions."""
        return rows_for(request.user, Purpose.LIST, Exchange.objects.defer(*TEXTS)).order_by("-started_at", "-id")

    def get_fieldsets(self, request: HttpRequest, obj: Exchange | None = None) -> Any:
        """Show the heartbeat of a running call. A relayed call has none: the journal knows whether it runs."""
        if obj is None or obj.ended_at is not None or obj.heartbeat_at > timezone.now():
            return self.fieldsets
        first, (times, shown), *rest = self.fieldsets
        return (first, (times, {"fields": (*shown["fields"], "heartbeat_at")}), *rest)

    @admin.display(description=_("started"))
    def started(self, exchange: Exchange) -> str:
        return f"{timezone.localtime(exchange.started_at):%Y-%m-%d %H:%M:%S}"

    started_in_full = admin.display(lambda _self, call: format_second(call.started_at), description=_("started"))
    ended_in_full = admin.display(lambda _self, call: format_second(call.ended_at), description=_("ended"))

    @admin.display(description=_("duration"))
    def took(self, exchange: Exchange) -> str:
        ended = exchange.ended_at
        return duration((ended - exchange.started_at).total_seconds()) if ended else DASH

    @admin.display(description=_("end reason"))
    def ended_how(self, exchange: Exchange) -> str:
        """The value of lists, filters and the API, and its explanation."""
        return ": ".join(filter(None, (exchange.end_reason, end_words(exchange.end_reason)))) or DASH

    @admin.display(description=_("tokens"))
    def tokens(self, exchange: Exchange) -> str:
        """Input and output tokens, if they were counted."""
        read, written = (exchange.usage.get(name) for name in ("input_tokens", "output_tokens"))
        return f"{thousands(read or 0)} + {thousands(written or 0)}" if read or written else DASH

    @admin.display(description=_("tokens estimated"))
    def estimated(self, exchange: Exchange) -> str:
        """Only chat calls are estimated in advance."""
        return thousands(exchange.estimated_tokens) if exchange.estimated_tokens else DASH

    asked_by = admin.display(lambda _self, call: call.api_key.name if call.api_key else DASH, description=_("API key"))
    shown_cost = admin.display(lambda _self, exchange: dollars(exchange.cost), description=_("cost"))

    path = metadata_column("path", _("path"))
    helper = metadata_column("helper", _("side call"))
    program = metadata_column("client", _("program"))
    translated_to = metadata_column("translated_to", _("translated to"))
    not_carried = metadata_column("not_carried", _("not forwarded"))

    @admin.display(description=_("providers tried"))
    def upstreams(self, exchange: Exchange) -> str:
        tried = facts_of(exchange).get("upstream", ())
        return ", ".join(f"{one.get('provider', '')} {one.get('status') or DASH}" for one in tried) or DASH

    @admin.display(description=_("earlier attempts"))
    def earlier_tries(self, exchange: Exchange) -> str:
        """Retries of the client, which were answered under other ids."""
        lines = ((_try_text(one),) for one in facts_of(exchange).get("retried", ()))
        return format_html_join(mark_safe("<br>"), "{}", lines) or DASH

    @admin.display(description=_("recognised by"))
    def recognised(self, exchange: Exchange) -> str:
        return recognised(str(exchange.metadata.get("recognised_by", ""))) or DASH

    @admin.display(description=_("session"))
    def shown_session(self, exchange: Exchange) -> str:
        return session_link(exchange.session.pk, exchange.session) if exchange.session else DASH


def _try_text(one: JsonObject) -> str:
    at = format_second(datetime.fromisoformat(one["at"])) if "at" in one else ""
    ended = " ".join(str(one[name]) for name in ("end_reason", "status") if one.get(name))
    return ", ".join(filter(None, (at, ended, one.get("exchange"))))


def format_second(time: datetime | None) -> str:
    if time is None:
        return DASH
    local = timezone.localtime(time)
    return f"{date_format(local, 'DATE_FORMAT')} {local:%H:%M:%S} ({timezone.get_current_timezone_name()})"
