"""/help/ and its pages."""

from __future__ import annotations

from itertools import groupby

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from project.help.pages import find_page, list_pages


@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    labels = {"": _("Guides"), "clients": _("Clients"), "decisions": _("Decisions")}
    folders = groupby(list_pages(), key=lambda page: page.folder)
    groups = [(labels.get(folder, folder), list(pages)) for folder, pages in folders]
    return render(request, "help/index.html", {"groups": groups})


@login_required
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    found = find_page(name)
    if found is None:
        raise Http404
    return render(request, "help/page.html", {"page": found})
