"""Pages of providers and MCP servers (`/providers/`, `/mcp-servers/`): status and connection tests, for staff."""

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from history.answers.assembly import Assembler
from history.context.values import Context, ContextEntry, Role
from history.dialects import CallOptions
from history.entries import Text, text_of
from history.http import HtmxRequest, staff_only
from relay.errors import NoSuchModel, ProviderError, VendorFault
from relay.models import McpServer
from relay.providers import connections
from relay.providers.error_advice import describe_error
from relay.providers.http import Route
from relay.providers.registry import ProviderStatus, router
from relay.tools.mcp.servers import refresh_tool_list

QUESTION = "Reply with the single word OK."
MAX_TOKENS = 200  # enough for a model that thinks before it speaks; some refuse less
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTest:
    """How it went: `seconds` until the first piece of an answer, what was said, or the error."""

    model: str
    seconds: float = 0.0
    answer: str = ""
    error: ProviderError | None = None


@staff_only
@require_safe
def providers(request: HttpRequest) -> HttpResponse:
    return _page(request)


@staff_only
@require_POST
def test_provider(request: HtmxRequest, name: str) -> HttpResponse:
    """Make one small call and render its result: alone for htmx, else on the page."""
    checked = run_connection_test(_route(name, request.POST.get("model", "")))
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


def _page(request: HttpRequest, *, name: str = "", checked: ConnectionTest | None = None) -> HttpResponse:
    items = [_item(status, checked if status.provider.name == name else None) for status in router().providers()]
    default = None
    with suppress(NoSuchModel):
        default = router().route()
    return render(request, "settings/providers.html", {"items": items, "default": default})


def _item(status: ProviderStatus, checked: ConnectionTest | None) -> dict[str, Any]:
    last_error, variable = status.provider.last_error, status.provider.endpoint.key_variable
    errors = {
        "check_error": checked.error if checked else None,
        "last_error": last_error.error if last_error else None,
        "list_error": status.list_error,
    }
    advice = {
        name: describe_error(error, is_staff=True, variable=variable) if error else None
        for name, error in errors.items()
    }
    return {"status": status, "checked": checked, "failed_at": last_error.at if last_error else None, **advice}


@staff_only
@require_safe
def mcp_servers(request: HttpRequest) -> HttpResponse:
    return render(request, "settings/mcp_servers.html", {"servers": McpServer.objects.all()})


@staff_only
@require_POST
def refresh_mcp_server(request: HtmxRequest, name: str) -> HttpResponse:
    """List the tools of the server: its row for htmx, else the page."""
    server = refresh_tool_list(get_object_or_404(McpServer, name=name))
    if not request.htmx:
        return redirect("relay:mcp_servers")
    return render(request, "settings/_mcp_server.html", {"server": server})


def run_connection_test(route: Route) -> ConnectionTest:
    """In a loop of its own, so it may be called from any thread that has none."""
    return asyncio.run(_check(route))


async def _check(route: Route) -> ConnectionTest:
    question = ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=QUESTION),))
    options = CallOptions(model=route.model.name, max_tokens=MAX_TOKENS)
    began, first = time.monotonic(), 0.0
    assembler = Assembler()
    try:
        call = route.provider.call(Context(entries=(question,)), options)
        async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(call) as events:
            async for event in events:
                first = first or time.monotonic() - began
                assembler.feed(event)
    except ProviderError as failure:
        return ConnectionTest(model=route.model.name, error=failure)
    except TimeoutError:
        slow = VendorFault(
            f"no complete answer within {TIMEOUT_SECONDS:g} seconds", provider=route.provider.name, kind="timeout"
        )
        return ConnectionTest(model=route.model.name, error=slow)
    finally:
        await connections.close()
    return ConnectionTest(model=route.model.name, seconds=first, answer=text_of(assembler.output().parts))
