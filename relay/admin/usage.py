"""Allowances, usage, runs and queued messages in the admin."""

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from history.admin.base import ReadOnlyAdmin
from relay.models import Allowance, QueuedMessage, Run, Spending

LIMITS = ("messages_per_minute", "tokens_per_day", "cost_per_day")
LIMITS_HELP = _("Empty: the default of the settings. 0: no limit.")


@admin.register(Allowance)
class AllowanceAdmin(admin.ModelAdmin[Allowance]):
    fieldsets = ((None, {"fields": ("user", *LIMITS), "description": LIMITS_HELP}),)
    list_display = ("user", *LIMITS)
    list_select_related = ("user",)
    search_fields = ("user__username",)
    raw_id_fields = ("user",)


class AllowanceInline(admin.StackedInline[Allowance, Any]):
    """For the page of a user."""

    model = Allowance
    fieldsets = ((None, {"fields": LIMITS, "description": LIMITS_HELP}),)


@admin.register(Spending)
class SpendingAdmin(ReadOnlyAdmin[Spending]):
    list_display = ("day", "user", "messages", "tokens", "cost")
    list_select_related = ("user",)
    search_fields = ("user__username",)
    date_hierarchy = "day"


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Without error texts, which may repeat a conversation."""

    exclude = ("error", "session")
    readonly_fields = ("session_id",)
    list_display = ("started_at", "owner", "agent", "model", "outcome", "ended_at", "session_id")
    list_select_related = ("owner",)
    list_filter = ("outcome",)
    search_fields = ("session__id", "owner__username")


@admin.register(QueuedMessage)
class QueuedMessageAdmin(ReadOnlyAdmin[QueuedMessage]):
    """Without texts: reading those needs the permission to read sessions."""

    list_display = ("created_at", "owner", "agent", "model", "session_id")
    list_select_related = ("owner",)
    exclude = ("text", "attachments", "session")
    readonly_fields = ("session_id",)

    def get_object(self, *args: Any, **kwargs: Any) -> QueuedMessage | None:
        """The title of the page is the text of the message."""
        message = super().get_object(*args, **kwargs)
        if message is not None:
            message.text = ""
        return message
