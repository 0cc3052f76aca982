"""Providers and MCP servers (`/providers/`, `/mcp-servers/`): status and connection tests, for staff."""

from contextlib import suppress
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from history.http import HtmxRequest, staff_only
from relay.errors import NoSuchModel, ProviderError
from relay.models import McpServer
from relay.providers.advice import Advice, advise
from relay.providers.checking import Checked, check
from relay.providers.http import Route
from relay.providers.registry import ProviderStatus, router
from relay.tools.mcp.servers import look


@dataclass(frozen=True, slots=True)
class Item:
    """One provider as the page shows it."""

    status: ProviderStatus
    checked: Checked | None = None

    @property
    def check_error(self) -> Advice | None:
        return self._advise(self.checked.error) if self.checked else None

    @property
    def trouble(self) -> Advice | None:
        """The last failure."""
        return self._advise(self.status.provider.trouble.error) if self.status.provider.trouble else None

    @property
    def list_error(self) -> Advice | None:
        return self._advise(self.status.list_error)

    def _advise(self, error: ProviderError | None) -> Advice | None:
        if error is None:
            return None
        return advise(error, is_staff=True, variable=self.status.provider.endpoint.key_variable)


@staff_only
@require_safe
def providers(request: HttpRequest) -> HttpResponse:
    return _page(request)


@staff_only
@require_POST
def try_provider(request: HtmxRequest, name: str) -> HttpResponse:
    """Make one small call and render its result: alone for htmx, else on the page."""
    checked = check(_route(name, request.POST.get("model", "")))
    if not request.htmx:
        return _page(request, name=name, checked=checked)
    [status] = [status for status in router().providers() if status.provider.name == name]
    return render(request, "settings/_provider_check.html", {"item": Item(status, checked)})


def _route(name: str, model: str) -> Route:
    provider = router().provider(name)
    if provider is None or not (model or provider.models):
        raise Http404
    try:
        return router().route(f"{name}/{model or provider.models[0].name}")
    except NoSuchModel as error:
        raise Http404 from error


def _page(request: HttpRequest, *, name: str = "", checked: Checked | None = None) -> HttpResponse:
    items = [Item(status, checked if status.provider.name == name else None) for status in router().providers()]
    default = None
    with suppress(NoSuchModel):
        default = router().route()
    return render(request, "settings/providers.html", {"items": items, "default": default})


# MCP servers.


@staff_only
@require_safe
def mcp_servers(request: HttpRequest) -> HttpResponse:
    return render(request, "settings/mcp_servers.html", {"servers": McpServer.objects.all()})


@staff_only
@require_POST
def look_at(request: HtmxRequest, name: str) -> HttpResponse:
    """List the tools of the server: its row for htmx, else the page."""
    server = look(get_object_or_404(McpServer, name=name))
    if not request.htmx:
        return redirect("relay:mcp_servers")
    return render(request, "settings/_mcp_server.html", {"server": server})
