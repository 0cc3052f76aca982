"""Command palette: the list below its text box, on every page."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from history.http.htmx import HtmxRequest, wants_fragment
from relay.pages.palette.entries import palette_for
from relay.pages.sidebar.query import words_of


@login_required
@never_cache
@require_safe
@vary_on_headers("HX-Request")
def palette(request: HtmxRequest) -> HttpResponse:
    """The list below the box. Without a script there is no box: the list of sessions searches as well."""
    words = words_of(request.GET)
    if not wants_fragment(request):
        return redirect(reverse("relay:rail") + (f"?{urlencode({'q': words})}" if words else ""))
    return render(request, "chat/_palette_list.html", {"palette": palette_for(request.user, words)})
