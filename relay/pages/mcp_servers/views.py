"""The staff's page of MCP servers: which there are, what they offer, and a button that asks them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from history.http.htmx import HtmxRequest
from history.pages.staff_only import staff_only
from relay.models import McpServer
from relay.tools.mcp.servers import look


@staff_only
@require_safe
def servers(request: HttpRequest) -> HttpResponse:
    return render(request, "relay/mcp_servers.html", {"servers": McpServer.objects.all()})


@staff_only
@require_POST
def look_at(request: HtmxRequest, name: str) -> HttpResponse:
    """What it offers now, by itself where htmx asks for it, else on the page."""
    server = look(get_object_or_404(McpServer, name=name))
    if not request.htmx:
        return redirect("relay:mcp_servers")
    return render(request, "relay/_mcp_server.html", {"server": server})
