"""/history/: everything that was recorded, to search, narrow, select and take out. Every state is an address."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import push_url

from history.http.htmx import HtmxRequest
from history.pages.browse import BrowseQuery, browse, browse_again, browse_on, latest_archiving
from history.pages.charts import headlines


@login_required
@never_cache
@require_safe
@vary_on_headers("HX-Request")
def history(request: HtmxRequest) -> HttpResponse:
    """The page; what has changed of it for htmx, which shows the address without what is empty in it."""
    asked = BrowseQuery.of(request.GET)
    if request.htmx and asked.before:
        return render(request, "history/browse/_rows.html", {"browse": browse_on(request.user, asked)})
    context: dict[str, Any] = {"archiving": latest_archiving(request.session)}
    if request.htmx.trigger == "found":  # the list itself, which has heard of something new in it
        context["browse"] = browse_again(request.user, asked)
        return render(request, "history/browse/_found.html", context)
    template = "history/browse/_answer.html" if request.htmx else "history/browse/page.html"
    context["browse"] = browse(request.user, asked)
    if not request.htmx and not asked.is_narrowed and not asked.before:
        context["headlines"] = headlines(request.user)
    response = render(request, template, context)
    address = reverse("history:browse") + asked.here.removesuffix("?")
    # The search box asks again when it loses the focus: the same address would need two steps back.
    if request.htmx and request.htmx.current_url_abs_path != address:
        push_url(response, address)
    return response
