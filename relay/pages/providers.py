"""Providers and MCP servers (`/providers/`, `/mcp-servers/`): status and connection tests, for staff."""

from contextlib import suppress
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from history.http import HtmxRequest, staff_only
from relay.errors import NoSuchModel
from relay.models import McpServer
from relay.providers.advice import advise
from relay.providers.checking import Checked, check
from relay.providers.http import Route
from relay.providers.registry import ProviderStatus, router
from relay.tools.mcp.servers import look


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
    return render(request, "settings/_provider_check.html", {"item": _item(status, checked)})


def _route(name: str, model: str) -> Route:
    provider = router().provider(name)
    if provider is None or not (model or provider.models):
        raise Http404
    try:
        return router().route(f"{name}/{model or provider.models[0].name}")
    except NoSuchModel as error:
        raise Http404 from error


def _page(request: HttpRequest, *, name: str = "", checked: Checked | None = None) -> HttpResponse:
    items = [_item(status, checked if status.provider.name == name else None) for status in router().providers()]
    default = None
    with suppress(NoSuchModel):
        default = router().route()
    return render(request, "settings/providers.html", {"items": items, "default": default})


def _item(status: ProviderStatus, checked: Checked | None) -> dict[str, Any]:
    """One provider as the page shows it, with the errors of a check, of the last call and of its list of models."""
    trouble, variable = status.provider.trouble, status.provider.endpoint.key_variable
    errors = {
        "check_error": checked.error if checked else None,
        "trouble": trouble.error if trouble else None,
        "list_error": status.list_error,
    }
    advice = {
        name: advise(error, is_staff=True, variable=variable) if error else None for name, error in errors.items()
    }
    return {"status": status, "checked": checked, "failed_at": trouble.at if trouble else None, **advice}


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
