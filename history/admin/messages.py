"""Admin of messages, tool calls and exchanges (calls to models).

Lists show the texts of sessions that the viewer has opened. Exchanges have times, ends, tokens and costs, but no texts.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy as _
from django_stubs_ext import StrPromise

from history.access.permissions import Purpose, can_access_others, rows_for
from history.access.reasons import open_for_reading, readable_without_reason
from history.admin.base import LongListAdmin, M, ReadOnly, recent, session_link
from history.entries import JsonObject
from history.markdown import render
from history.models import Exchange, Message, ToolCall
from history.models.exchanges import PLAN, read_list_price
from history.search import SessionQuery
from history.search.finding import find_newest
from history.templatetags.transcripts import dollars, duration, end_reason_text, recognition_label, thousands
from history.transcripts.previews import entries_in_brief, facts_of

BEGINNING = 160
FILTERS = ("role", "status", "model", "agent", "tool")


class ReadingAdmin(LongListAdmin[M]):
    """Rows with texts. The page of one needs a reason."""

    purpose = Purpose.READ

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            open_for_reading(request.user, row.session)  # type: ignore[attr-defined]
        return row

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        readable = readable_without_reason(request.user, {row.session_id for row in changelist.result_list})
        for row in changelist.result_list:
            row.is_open = row.session_id in readable
        return changelist

    def find_messages(self, request: HttpRequest, words: str) -> list[int] | None:
        """Ids of the messages within the search and the filters beside the list; None without either."""
        filters = SessionQuery.parse({name: request.GET.get(name) or None for name in FILTERS})
        has_query = words.strip() or filters != SessionQuery()
        return list(find_newest(request.user, words, filters=filters)) if has_query else None

    @admin.display(description=_("session"))
    def shown_session(self, row: Any) -> SafeString:
        return session_link(row.session_id, row.session)


by_engine = partial(recent, by_engine=True)


class CallsInline(ReadOnly, admin.TabularInline[ToolCall, Message]):
    model = ToolCall
    fields = ("name", "status", "arguments", "result", "error", "duration")
    extra = 0

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return can_access_others(request.user, Purpose.READ)


@admin.register(Message)
class MessageAdmin(ReadingAdmin[Message]):
    list_display = ("shown_name", "shown_session", "role", "beginning", "model", "status", "created_at")
    list_select_related = ("session",)
    list_filter = (
        by_engine("role", _("role"), Message.Role.choices),
        by_engine("status", _("status"), Message.Status.choices),
        by_engine("model", _("model")),
        by_engine("agent", _("agent")),
    )
    search_fields = ("content",)
    search_help_text = _('Words, "a phrase", pay*, -without, this OR that. Shows the newest 300 messages.')
    ordering = ("-id",)
    inlines = (CallsInline,)
    fieldsets = (
        (None, {"fields": ("shown_session", "seq", "parent_seq", "kind", "role", "status", "text")}),
        (_("Call"), {"fields": ("agent", "provider", "model", "end_reason", "request_id", "latency", "duration")}),
        (_("Counters"), {"fields": ("input_tokens", "output_tokens", "usage_source", "content_chars")}),
        (_("Record"), {"fields": ("created_at", "on_path", "is_internal", "dropped_at", "shown_seal")}),
    )
    readonly_fields = ("shown_session", "text", "shown_seal")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        rows = Message.objects.select_related("session").defer("content", "body", "metadata", "session__metadata")
        return rows_for(request.user, Purpose.READ, rows).annotate(start=Left("content", BEGINNING)).order_by("-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        ids = self.find_messages(request, search_term)
        return (queryset if ids is None else queryset.filter(pk__in=ids)), False

    shown_name = admin.display(lambda _self, message: str(message), description=_("entry"))

    @admin.display(description=_("text"))
    def beginning(self, message: Any) -> Any:
        return message.start if message.is_open else _("Give a reason to read it")

    @admin.display(description=_("text"))
    def text(self, message: Message) -> SafeString:
        if message.body is None:
            return SafeString(_("Removed by this server’s retention rules."))
        return render(entries_in_brief([message])[0].text)

    shown_seal = admin.display(lambda _self, message: str(message.seal.hex()), description=_("seal"))


@admin.register(ToolCall)
class ToolCallAdmin(ReadingAdmin[ToolCall]):
    list_display = ("name", "shown_session", "status", "shown_arguments", "duration", "created_at")
    list_select_related = ("session",)
    list_filter = (by_engine("name", _("tool"), called="tool"),)
    search_fields = ("arguments",)
    search_help_text = _("Calls of messages with these words. Searches the newest 300 messages.")
    ordering = ("-id",)
    fields = (
        "shown_session", "shown_message", "name", "call_id", "status",
        "arguments", "result", "error", "created_at", "started_at", "duration", "answered_by",
    )  # fmt: skip
    readonly_fields = ("shown_session", "shown_message")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ToolCall]:
        rows = ToolCall.objects.select_related("session").defer("arguments", "result", "error", "session__metadata")
        return rows_for(request.user, Purpose.READ, rows).annotate(start=Left("arguments", BEGINNING)).order_by("-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ToolCall], search_term: str
    ) -> tuple[QuerySet[ToolCall], bool]:
        ids = self.find_messages(request, search_term)
        if ids is not None:
            queryset = queryset.filter(message_id__in=ids)
        return (queryset.filter(name=tool) if (tool := request.GET.get("tool")) else queryset), False

    @admin.display(description=_("message"))
    def shown_message(self, call: ToolCall) -> SafeString:
        url = reverse("admin:history_message_change", args=[call.message_id])
        return format_html('<a href="{}">{}</a>', url, call.message)

    @admin.display(description=_("arguments"))
    def shown_arguments(self, call: Any) -> Any:
        return call.start if call.is_open else _("Give a reason to read it")


TEXTS = ("partial", "inputs", "metadata", "error", "session__metadata")
CALL_FIELDS = ("path", "helper", "attempts", "status_code", "tokens", "usage", "estimated", "shown_cost", "billing")
DASH = "–"


def metadata_column(name: str, title: StrPromise) -> Callable[[object, Exchange], str]:
    return admin.display(lambda _self, exchange: str(exchange.metadata.get(name, "")) or DASH, description=title)


@admin.register(Exchange)
class ExchangeAdmin(LongListAdmin[Exchange]):
    """Texts are in the messages. End and cost come first: a narrow window shows the beginning of each row."""

    list_display = (
        "started", "end_reason", "status_code", "shown_cost", "billing", "took", "tokens",
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
        *(
            "tokens",
            "estimated",
            "shown_cost",
            "billing",
            "program",
            "upstreams",
            "earlier_tries",
            "translated_to",
            "not_carried",
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Exchange]:
        """Also exchanges without a session, for viewers who may list all sessions."""
        rows = Exchange.objects.defer(*TEXTS).annotate(billed=KT("metadata__billing"), price=KT("metadata__list_price"))
        return rows_for(request.user, Purpose.LIST, rows).order_by("-started_at", "-id")

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
        return ": ".join(filter(None, (exchange.end_reason, end_reason_text(exchange.end_reason)))) or DASH

    @admin.display(description=_("tokens"))
    def tokens(self, exchange: Exchange) -> str:
        read, written = (exchange.usage.get(name) for name in ("input_tokens", "output_tokens"))
        return f"{thousands(read or 0)} + {thousands(written or 0)}" if read or written else DASH

    @admin.display(description=_("tokens estimated"))
    def estimated(self, exchange: Exchange) -> str:
        """Only chat calls are estimated in advance."""
        return thousands(exchange.estimated_tokens) if exchange.estimated_tokens else DASH

    asked_by = admin.display(lambda _self, call: call.api_key.name if call.api_key else DASH, description=_("API key"))

    shown_cost = admin.display(lambda _self, exchange: dollars(exchange.cost), description=_("cost"))

    @admin.display(description=_("billing"))
    def billing(self, exchange: Any) -> str:
        """By annotations: the rest of the metadata may be long."""
        if exchange.billed != PLAN:
            return DASH
        price = read_list_price({"list_price": exchange.price})
        return gettext("plan") if price is None else gettext("plan, list price %(price)s") % {"price": dollars(price)}

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
        return recognition_label(str(exchange.metadata.get("recognised_by", ""))) or DASH

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
