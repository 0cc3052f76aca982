"""Agents and allowances, for staff to set; what is running and what was used, for staff to look at."""

from __future__ import annotations

from typing import Any, TypeVar

from django import forms
from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from history.admin.looking import ReadOnlyAdmin
from relay.admin.agent_files import AgentFilesAdmin
from relay.admin.mcp_servers import McpServerAdmin
from relay.agents.folders import FolderNotAllowed, resolve_folder
from relay.models import Agent, Allowance, QueuedMessage, Run, Spending
from relay.tools.mcp.servers import all_tools as of_mcp_servers
from relay.tools.registry import all_tools

__all__ = ["McpServerAdmin"]

M = TypeVar("M", bound=models.Model)


class AgentForm(forms.ModelForm[Agent]):
    tools = forms.MultipleChoiceField(label=_("tools"), required=False, widget=forms.CheckboxSelectMultiple)
    agents = forms.MultipleChoiceField(
        label=_("agents it may call"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("With the tool call_agent. None: all others."),
    )

    folders = forms.CharField(
        label=_("working folders"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text=_("One on each line; it is told what is in them. Only below PARLEY_FOLDERS."),
    )

    class Meta:
        model = Agent
        fields = "__all__"  # noqa: DJ007 - staff may set all of it
        widgets = {"instruction": forms.Textarea(attrs={"rows": 16, "cols": 100})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tools = {tool.name: f"{tool.name}: {tool.summary}" for tool in [*all_tools(), *of_mcp_servers()]}
        agents = {agent.name: str(agent) for agent in Agent.objects.all()}
        self._offer("tools", tools, chosen=self.instance.tools)
        self.initial["folders"] = "\n".join(self.instance.folders)
        self._offer("agents", agents, chosen=self.instance.agents)

    def _offer(self, field: str, there: dict[str, str], *, chosen: list[str] | None) -> None:
        """What there is, and what the agent has that nobody knows: saving something else must not take it away."""
        gone = [name for name in map(str, chosen or ()) if name not in there]
        words = [(name, _("%(name)s: is not there any more") % {"name": name}) for name in gone]
        self.fields[field].choices = [*there.items(), *words]  # type: ignore[attr-defined]

    def clean_instruction(self) -> str:
        """Lines end as everywhere else; browsers send the ends of Windows."""
        return str(self.cleaned_data["instruction"]).replace("\r\n", "\n")

    def clean_folders(self) -> list[str]:
        folders = [line.strip() for line in self.cleaned_data["folders"].splitlines() if line.strip()]
        for folder in folders:
            try:
                resolve_folder(folder)
            except FolderNotAllowed:
                problem = _("%(folder)s is no folder below PARLEY_FOLDERS.") % {"folder": folder[:200]}
                raise forms.ValidationError(problem) from None
        return folders

    def _get_validation_exclusions(self) -> set[str]:
        """Another default is no error: it gives way, see `save_model`."""
        return {*super()._get_validation_exclusions(), "is_default"}  # type: ignore[misc]


@admin.register(Agent)
class AgentAdmin(AgentFilesAdmin):
    form = AgentForm
    list_display = ("name", "label", "model", "shown_tools", "is_default")
    search_fields = ("name", "label")
    fieldsets = (
        (None, {"fields": ("name", "label", "is_default", "instruction", "tools", "agents")}),
        (_("Models"), {"fields": ("model", "planner_model", "reviewer_model", "temperature", "reasoning_effort")}),
        (_("Limits"), {"fields": ("max_steps", "max_turns", "max_answer_tokens", "max_turn_tokens")}),
        (_("Compression"), {"fields": ("compress_at", "keep_turns")}),
    )

    @admin.display(description=_("tools"))
    def shown_tools(self, agent: Agent) -> str:
        return ", ".join(map(str, agent.tools))

    def save_model(self, request: HttpRequest, obj: Agent, form: Any, change: bool) -> None:
        if obj.is_default:
            Agent.objects.filter(is_default=True).exclude(pk=obj.pk).update(is_default=False)
        super().save_model(request, obj, form, change)


LIMITS = ("messages_per_minute", "tokens_per_day", "cost_per_day")
WHAT_LIMITS_MEAN = _("Empty: the general limit of the settings. 0: no limit.")


@admin.register(Allowance)
class AllowanceAdmin(admin.ModelAdmin[Allowance]):
    fieldsets = ((None, {"fields": ("user", *LIMITS), "description": WHAT_LIMITS_MEAN}),)
    list_display = ("user", *LIMITS)
    list_select_related = ("user",)
    search_fields = ("user__username",)
    raw_id_fields = ("user",)


class AllowanceInline(admin.StackedInline[Allowance, Any]):
    """For the page of a person."""

    model = Allowance
    fieldsets = ((None, {"fields": LIMITS, "description": WHAT_LIMITS_MEAN}),)


@admin.register(Spending)
class SpendingAdmin(ReadOnlyAdmin[Spending]):
    list_display = ("day", "user", "messages", "tokens", "cost")
    list_select_related = ("user",)
    search_fields = ("user__username",)
    date_hierarchy = "day"


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """How it ended, not in which words: those may repeat what was said."""

    exclude = ("error",)
    list_display = ("started_at", "owner", "agent", "model", "outcome", "ended_at", "session")
    list_select_related = ("owner",)
    list_filter = ("outcome",)
    search_fields = ("session", "owner__username")


@admin.register(QueuedMessage)
class QueuedMessageAdmin(ReadOnlyAdmin[QueuedMessage]):
    """Who waits, not what they wrote: to read that takes the right to read sessions."""

    list_display = ("created_at", "owner", "agent", "model", "session")
    list_select_related = ("owner",)
    exclude = ("text", "attachments")

    def get_object(self, *args: Any, **kwargs: Any) -> QueuedMessage | None:
        """The page of one is called after it, and that would be its text."""
        found = super().get_object(*args, **kwargs)
        if found is not None:
            found.text = ""
        return found
