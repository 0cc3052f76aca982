"""Recently deleted sessions (`/history/deleted/`): restore them until they are removed for good."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_list_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from relay.pages.sidebar.sessions import in_trash
from relay.pages.sidebar.views import bring_back, picked

PAGE = 50


@login_required
@never_cache
@require_safe
def deleted(request: HttpRequest) -> HttpResponse:
    page = Paginator(in_trash(request.user), PAGE).get_page(request.GET.get("page"))
    hours = timedelta(hours=settings.PARLEY_TRASH_HOURS)
    rows = [
        {"session": session, "removed_at": session.hidden_at + hours if session.hidden_at else timezone.now()}
        for session in page
    ]
    context = {"page": page, "rows": rows, "hours": settings.PARLEY_TRASH_HOURS}
    return render(request, "chat/deleted.html", context)


@login_required
@require_POST
def restore(request: HttpRequest) -> HttpResponse:
    for session in get_list_or_404(in_trash(request.user), pk__in=picked(request)):
        bring_back(session, by=request.user)
        title = session.title or gettext("Untitled")
        messages.success(request, gettext("“%(title)s” is restored.") % {"title": title})
    return redirect("relay:deleted")
