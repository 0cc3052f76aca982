"""MCP servers in the admin. A server's program runs on this machine with our rights, so it needs a permission.

Values of the environment and of headers are not shown once they are stored. A line that still has the marks in place of
its value keeps the stored value.
"""

import re
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _

from relay.models import McpServer
from relay.tools.mcp.config import seal, unseal

HIDDEN = "•••"
PROGRAMS_ARE_OFF = _("Not started. This server does not run programs: set PARLEY_MCP_COMMANDS=on to allow them.")
_LINES = forms.Textarea(attrs={"rows": 4, "cols": 80, "autocomplete": "off", "spellcheck": "false"})


class SecretLines(forms.CharField):
    """Names with their values, one to a line. Stored values are shown as marks and keep their value."""

    stored = ""  # what the server has: encrypted

    def __init__(self, *, between: str, name: str, **kwargs: Any) -> None:
        super().__init__(required=False, widget=_LINES, **kwargs)
        self.between, self.name = between, re.compile(name)

    def shown(self) -> str:
        return "\n".join(f"{name}{self.between}{HIDDEN}" for name in unseal(self.stored) or {})

    def clean(self, text: Any) -> str:
        known, values = unseal(self.stored) or {}, {}
        for line in filter(str.strip, super().clean(text).splitlines()):
            name, between, value = (part.strip() for part in line.partition(self.between.strip()))
            if not between or not self.name.fullmatch(name):
                raise forms.ValidationError(gettext("Write one per line: NAME%(sign)svalue") % {"sign": self.between})
            if value == HIDDEN and name not in known:
                raise forms.ValidationError(gettext("No value is stored for %(name)s. Enter one.") % {"name": name})
            values[name] = known[name] if value == HIDDEN else value
        return seal(values)


class McpServerForm(forms.ModelForm[McpServer]):
    arguments = forms.CharField(
        label=_("arguments"),
        required=False,
        widget=_LINES,
        help_text=_("One per line, passed unchanged: no shell reads them."),
    )
    environment = SecretLines(
        label=_("environment"),
        between="=",
        name=r"[A-Za-z_][A-Za-z0-9_]*",
        help_text=_(
            "NAME=value, one per line. Values are encrypted and not shown again. The server’s own "
            "environment is not passed on."
        ),
    )
    headers = SecretLines(
        label=_("headers"),
        between=": ",
        name=r"[A-Za-z0-9-]+",
        help_text=_(
            "Name: value, one per line, such as Authorization: Bearer …. Values are encrypted and not shown again."
        ),
    )

    class Meta:
        model = McpServer
        fields = ("name", "transport", "command", "arguments", "environment", "url", "headers", "seconds", "is_enabled")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["arguments"] = "\n".join(map(str, self.instance.arguments))
        for name, field in self.fields.items():
            field.label = capfirst(field.label)
            if isinstance(field, SecretLines):
                field.stored = getattr(self.instance, name)
                self.initial[name] = field.shown()

    def clean_arguments(self) -> list[str]:
        return [line for line in self.cleaned_data["arguments"].splitlines() if line]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        transport, url = cleaned.get("transport"), cleaned.get("url") or ""
        is_program = transport == McpServer.Transport.STDIO
        if is_program and cleaned.get("is_enabled") and not settings.PARLEY_MCP_COMMANDS:
            self.add_error("transport", PROGRAMS_ARE_OFF)
        if is_program and not cleaned.get("command"):
            self.add_error("command", gettext("Enter a program."))
        if transport == McpServer.Transport.HTTP and not re.match(r"https?://[^/\s]+", url):
            self.add_error("url", gettext("Enter a URL such as https://tools.example/mcp."))
        return cleaned


@admin.register(McpServer)
class McpServerAdmin(admin.ModelAdmin[McpServer]):
    form = McpServerForm
    list_display = ("name", "transport", "is_enabled", "shown_tools", "looked_at", "shown_problem")
    readonly_fields = ("shown_tools", "looked_at", "shown_problem")

    def get_fieldsets(self, request: HttpRequest, obj: McpServer | None = None) -> Any:
        rights = _("Parley starts it on this machine. It has all rights of the user that Parley runs as.")
        warning = rights if settings.PARLEY_MCP_COMMANDS else PROGRAMS_ARE_OFF
        checked = _("As of the last check on the MCP servers page. Select the tools of each agent on its page.")
        program = {"fields": ("command", "arguments", "environment"), "description": warning}
        return (
            (None, {"fields": ("name", "is_enabled", "transport", "seconds")}),
            (_("A program on this server"), program),
            (_("An address"), {"fields": ("url", "headers")}),
            (_("Offered tools"), {"fields": self.readonly_fields, "description": checked}),
        )

    @admin.display(description=_("problem"))
    def shown_problem(self, server: McpServer) -> str:
        return str(PROGRAMS_ARE_OFF) if server.is_forbidden else server.problem

    @admin.display(description=_("tools"))
    def shown_tools(self, server: McpServer) -> str:
        return ", ".join(str(tool["name"]) for tool in server.tools) or "–"
