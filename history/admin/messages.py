"""Admin of messages and tool calls: lists show the texts of sessions that the viewer has opened."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from history.access.permissions import Purpose, can_access_others, rows_for
from history.access.reasons import open_for_reading, readable_without_reason
from history.admin.base import LongListAdmin, M, ReadOnly, recent, session_link
from history.markdown import render
from history.models import Message, ToolCall
from history.search import SessionQuery
from history.search.finding import find_newest
from history.transcripts.previews import entries_in_brief

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
        """Look up once which rows of the page may show their text."""
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
