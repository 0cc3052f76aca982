"""MCP servers for staff to set. The program of one runs on this server, with our rights: so it takes a permission.

Values of the environment and of headers are shown to nobody once they are kept: a line that still has the marks in
place of its value keeps what was written before.
"""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from relay.models import McpServer
from relay.tools.mcp.sealed import seal, unseal

KEPT = "•••"
PROGRAMS_ARE_OFF = _("Not started: programs are off on this server. Set PARLEY_MCP_COMMANDS=on to allow them.")
_LINES = forms.Textarea(attrs={"rows": 4, "cols": 80, "autocomplete": "off", "spellcheck": "false"})


class SecretLines(forms.CharField):
    """Names with their values, one to a line. What was kept is shown as marks, and sealed again as it was."""

    def __init__(self, *, between: str, name: str, **kwargs: Any) -> None:
        super().__init__(required=False, widget=_LINES, **kwargs)
        self.between, self.name = between, re.compile(name)

    def shown(self, sealed: str) -> str:
        return "\n".join(f"{name}{self.between}{KEPT}" for name in unseal(sealed) or {})

    def sealed(self, text: str, before: str) -> str:
        known, read = unseal(before) or {}, {}
        for line in filter(str.strip, text.splitlines()):
            name, between, value = (part.strip() for part in line.partition(self.between.strip()))
            if not between or not self.name.fullmatch(name):
                raise forms.ValidationError(gettext("Write one to a line: NAME%(sign)svalue") % {"sign": self.between})
            if value == KEPT and name not in known:
                raise forms.ValidationError(gettext("%(name)s has no value that was kept.") % {"name": name})
            read[name] = known[name] if value == KEPT else value
        return seal(read)


class McpServerForm(forms.ModelForm[McpServer]):
    arguments = forms.CharField(
        label=_("arguments"),
        required=False,
        widget=_LINES,
        help_text=_("One to a line, as they are: no shell reads them."),
    )
    environment = SecretLines(
        label=_("environment"),
        between="=",
        name=r"[A-Za-z_][A-Za-z0-9_]*",
        help_text=_(
            "NAME=value, one to a line. Values are encrypted and not shown again. Nothing of ours is passed on."
        ),
    )
    headers = SecretLines(
        label=_("headers"),
        between=": ",
        name=r"[A-Za-z0-9-]+",
        help_text=_("Name: value, one to a line, such as Authorization: Bearer …. Encrypted and not shown again."),
    )

    class Meta:
        model = McpServer
        fields = ("name", "transport", "command", "arguments", "environment", "url", "headers", "seconds", "is_enabled")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.label = capfirst(field.label)
        self.before = {name: getattr(self.instance, name) for name in ("environment", "headers")}
        self.initial["arguments"] = "\n".join(map(str, self.instance.arguments))
        for name, sealed in self.before.items():
            self.initial[name] = self._lines(name).shown(sealed)

    def clean_arguments(self) -> list[str]:
        return [line for line in self.cleaned_data["arguments"].splitlines() if line]

    def clean_environment(self) -> str:
        return self._lines("environment").sealed(self.cleaned_data["environment"], self.before["environment"])

    def clean_headers(self) -> str:
        return self._lines("headers").sealed(self.cleaned_data["headers"], self.before["headers"])

    def clean(self) -> dict[str, Any]:
        told = super().clean() or self.cleaned_data
        is_program = told.get("transport") == McpServer.Transport.STDIO
        if is_program and told.get("is_enabled") and not settings.PARLEY_MCP_COMMANDS:
            self.add_error("transport", PROGRAMS_ARE_OFF)
        if is_program and not told.get("command"):
            self.add_error("command", gettext("Which program?"))
        if told.get("transport") == McpServer.Transport.HTTP and not re.match(
            r"https?://[^/\s]+", told.get("url") or ""
        ):
            self.add_error("url", gettext("Write an address such as https://tools.example/mcp."))
        return told

    def _lines(self, name: str) -> SecretLines:
        field = self.fields[name]
        assert isinstance(field, SecretLines)
        return field


@admin.register(McpServer)
class McpServerAdmin(admin.ModelAdmin[McpServer]):
    form = McpServerForm
    list_display = ("name", "transport", "is_enabled", "shown_tools", "looked_at", "shown_problem")
    readonly_fields = ("shown_tools", "looked_at", "shown_problem")
    fieldsets = (
        (None, {"fields": ("name", "is_enabled", "transport", "seconds")}),
        (
            _("A program on this server"),
            {
                "fields": ("command", "arguments", "environment"),
                "description": _(
                    "It is started on this machine, as the user that Parley runs as, and can do whatever that user can."
                ),
            },
        ),
        (_("An address"), {"fields": ("url", "headers")}),
        (
            _("What it offers"),
            {
                "fields": ("shown_tools", "looked_at", "shown_problem"),
                "description": _(
                    "As it told when somebody looked: on the page of MCP servers. Agents get what you tick there."
                ),
            },
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: McpServer | None = None) -> Any:
        """The fields of a program begin with a warning: what it may do, or that programs are off."""
        fieldsets = super().get_fieldsets(request, obj)
        if settings.PARLEY_MCP_COMMANDS:
            return fieldsets
        off = {"description": PROGRAMS_ARE_OFF}
        return [(name, {**fields, **(off if "command" in fields["fields"] else {})}) for name, fields in fieldsets]

    @admin.display(description=_("problem"))
    def shown_problem(self, server: McpServer) -> str:
        return str(PROGRAMS_ARE_OFF) if server.is_forbidden else server.problem

    @admin.display(description=_("tools"))
    def shown_tools(self, server: McpServer) -> str:
        return ", ".join(str(kept["name"]) for kept in server.tools) or "–"
