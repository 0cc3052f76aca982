"""/history/: everything that was recorded, to search, narrow, select and take out. Every state is an address."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.browsing import Asked, browse, browse_again, browse_on
from history.charting import headlines


@login_required
@never_cache
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """The page; what has changed of it for htmx, which shows the address without what is empty in it."""
    asked = Asked.of(request.GET)
    is_htmx = request.headers.get("HX-Request") == "true"
    if is_htmx and asked.before:
        return _varied(render(request, "history/browse/_rows.html", {"browse": browse_on(request.user, asked)}))
    if request.headers.get("HX-Trigger") == "found":  # the list itself, which has heard of something new in it
        return _varied(render(request, "history/browse/_found.html", {"browse": browse_again(request.user, asked)}))
    template = "history/browse/_answer.html" if is_htmx else "history/browse/page.html"
    context: dict[str, Any] = {"browse": browse(request.user, asked)}
    if not is_htmx and not asked.is_narrowed and not asked.before:
        context["headlines"] = headlines(request.user)
    response = render(request, template, context)
    if is_htmx:
        response["HX-Push-Url"] = reverse("history:browse") + asked.here.removesuffix("?")
    return _varied(response)


def _varied(response: HttpResponse) -> HttpResponse:
    patch_vary_headers(response, ["HX-Request"])
    return response
