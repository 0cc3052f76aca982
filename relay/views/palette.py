"""Command palette: the list below its text box, on every page."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from relay.palette import palette_for
from relay.views.asked import words_of
from relay.views.rail import is_htmx


@login_required
@never_cache
@require_safe
def palette(request: HttpRequest) -> HttpResponse:
    """The list below the box. Without a script there is no box: the list of sessions searches as well."""
    words = words_of(request.GET)
    if not is_htmx(request):
        return redirect(reverse("relay:rail") + (f"?{urlencode({'q': words})}" if words else ""))
    response = render(request, "chat/_palette_list.html", {"palette": palette_for(request.user, words)})
    patch_vary_headers(response, ["HX-Request"])
    return response
