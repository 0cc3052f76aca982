"""Agents into files and out of them again, in the admin: a button on the page of an agent, and one above their list."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from relay.agents import toml
from relay.models import Agent


class ImportForm(forms.Form):
    file = forms.FileField(label=_("TOML file"), widget=forms.FileInput(attrs={"accept": ".toml"}))
    replace = forms.BooleanField(label=_("Change the agent of this name, if there is one"), required=False)

    def clean(self) -> dict[str, Any]:
        """With what is wrong in the file, line by line, beside it."""
        told = super().clean() or self.cleaned_data
        if "file" in told:
            try:
                told["found"] = toml.parse_agent(told["file"].read(toml.MOST_BYTES + 1))
            except toml.InvalidAgentFile as error:
                self.add_error("file", ValidationError(list(error.reasons)))
        return told


class AgentFilesAdmin(admin.ModelAdmin[Agent]):
    """Whoever may look at an agent may take it along; to bring one in takes the right to make or change it."""

    change_form_template = "admin/relay/agent/change_form.html"
    change_list_template = "admin/relay/agent/change_list.html"

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
        named = {"Content-Disposition": f'attachment; filename="{agent.name}.toml"'}
        return HttpResponse(toml.agent_to_toml(agent), content_type="application/toml; charset=utf-8", headers=named)

    def import_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ImportForm(request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid() and (agent := self._stored(request, form)):
            return redirect("admin:relay_agent_change", agent.pk)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Import an agent"),
            "form": form,
        }
        return TemplateResponse(request, "admin/relay/agent/import.html", context)

    def _stored(self, request: HttpRequest, form: ImportForm) -> Agent | None:
        """None: not taken, and the form says why."""
        found = form.cleaned_data["found"]
        there = Agent.objects.filter(name=found.agent.name).first()
        if form.cleaned_data["replace"] and there is not None and not self.has_change_permission(request, there):
            raise PermissionDenied
        try:
            agent = toml.save_agent(found, replacing=form.cleaned_data["replace"])
        except toml.InvalidAgentFile as error:
            form.add_error("file", ValidationError(list(error.reasons)))
            return None
        self._tell(request, agent, there=there, remarks=found.remarks)
        return agent

    def _tell(self, request: HttpRequest, agent: Agent, *, there: Agent | None, remarks: tuple[str, ...]) -> None:
        """To the one who did it, and to the admin's own log."""
        words = gettext("Imported from a file.")
        log = self.log_addition if there is None else self.log_change
        log(request, agent, words)
        for remark in remarks:
            messages.warning(request, remark)
        messages.success(request, gettext("The agent %(name)s is here now.") % {"name": agent.name})
