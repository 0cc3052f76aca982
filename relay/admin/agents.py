"""Agents in the admin: form, import and export as TOML files."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, gettext_lazy as _

from relay.agents import files
from relay.agents.requests import FolderNotAllowed, resolve_folder
from relay.models import Agent
from relay.tools.base import all_tools
from relay.tools.mcp.servers import all_tools as all_mcp_tools


class AgentForm(forms.ModelForm[Agent]):
    tools = forms.MultipleChoiceField(label=_("tools"), required=False, widget=forms.CheckboxSelectMultiple)
    agents = forms.MultipleChoiceField(
        label=_("callable agents"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("For the tool call_agent. None selected: all other agents."),
    )
    folders = forms.CharField(
        label=_("working folders"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text=_("One per line. The agent sees what is in them. Only below PARLEY_FOLDERS."),
    )

    class Meta:
        model = Agent
        fields = "__all__"  # noqa: DJ007 - staff may set all of it
        widgets = {"instruction": forms.Textarea(attrs={"rows": 16, "cols": 100})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tools = {tool.name: f"{tool.name}: {tool.summary}" for tool in [*all_tools().values(), *all_mcp_tools()]}
        agents = {agent.name: str(agent) for agent in Agent.objects.all()}
        self._set_choices("tools", tools, chosen=self.instance.tools)
        self.initial["folders"] = "\n".join(self.instance.folders)
        self._set_choices("agents", agents, chosen=self.instance.agents)

    def _set_choices(self, field: str, existing: dict[str, str], *, chosen: list[str] | None) -> None:
        """Keep names that do not exist any more: saving the form must not remove them."""
        gone = [name for name in map(str, chosen or ()) if name not in existing]
        labels = [(name, _("%(name)s: no longer available") % {"name": name}) for name in gone]
        self.fields[field].choices = [*existing.items(), *labels]  # type: ignore[attr-defined]

    def clean_instruction(self) -> str:
        """Browsers send the line ends of Windows."""
        return str(self.cleaned_data["instruction"]).replace("\r\n", "\n")

    def clean_folders(self) -> list[str]:
        folders = [line.strip() for line in self.cleaned_data["folders"].splitlines() if line.strip()]
        for folder in folders:
            try:
                resolve_folder(folder)
            except FolderNotAllowed:
                problem = _("%(folder)s is not a folder below PARLEY_FOLDERS.") % {"folder": folder[:200]}
                raise forms.ValidationError(problem) from None
        return folders

    def _get_validation_exclusions(self) -> set[str]:
        """`save_model` replaces another default."""
        return {*super()._get_validation_exclusions(), "is_default"}  # type: ignore[misc]


class ImportForm(forms.Form):
    file = forms.FileField(label=_("TOML file"), widget=forms.FileInput(attrs={"accept": ".toml"}))
    replace = forms.BooleanField(label=_("Update existing agent"), required=False)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "file" in cleaned:
            try:
                cleaned["parsed"] = files.parse_agent(cleaned["file"].read(files.MOST_BYTES + 1))
            except files.InvalidAgentFile as error:
                self.add_error("file", ValidationError(list(error.reasons)))
        return cleaned


@admin.register(Agent)
class AgentAdmin(admin.ModelAdmin[Agent]):
    """Export needs the permission to view an agent; import the permission to add or change one."""

    form = AgentForm
    change_form_template = "admin/relay/agent/change_form.html"
    change_list_template = "admin/relay/agent/change_list.html"
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

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("import/", self.admin_site.admin_view(self.import_view), name="relay_agent_import"),
            path("<int:pk>/export/", self.admin_site.admin_view(self.export_view), name="relay_agent_export"),
        ]
        return [*own, *super().get_urls()]

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        agent = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_view_permission(request, agent):
            raise PermissionDenied
        if agent is None:
            raise Http404
        headers = {"Content-Disposition": f'attachment; filename="{agent.name}.toml"'}
        return HttpResponse(files.agent_to_toml(agent), content_type="application/toml; charset=utf-8", headers=headers)

    def import_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ImportForm(request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid() and (agent := self._save_import(request, form)):
            return redirect("admin:relay_agent_change", agent.pk)
        context = self.admin_site.each_context(request)
        context |= {"opts": self.opts, "title": _("Import an agent"), "form": form}
        return TemplateResponse(request, "admin/relay/agent/import.html", context)

    def _save_import(self, request: HttpRequest, form: ImportForm) -> Agent | None:
        """None if the agent is refused: the form has the reasons."""
        parsed: tuple[Agent, list[str]] = form.cleaned_data["parsed"]
        agent, remarks = parsed
        existing = Agent.objects.filter(name=agent.name).first()
        replacing = form.cleaned_data["replace"]
        if replacing and existing is not None and not self.has_change_permission(request, existing):
            raise PermissionDenied
        try:
            files.save_agent(agent, replacing=replacing)
        except files.InvalidAgentFile as error:
            form.add_error("file", ValidationError(list(error.reasons)))
            return None
        log = self.log_addition if existing is None else self.log_change
        log(request, agent, gettext("Imported from a file."))
        for remark in remarks:
            messages.warning(request, remark)
        messages.success(request, gettext("Agent %(name)s imported.") % {"name": agent.name})
        return agent
