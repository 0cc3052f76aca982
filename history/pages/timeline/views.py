"""Where the time of one session went. Names and times, never a text: whoever may list the session sees it."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access.permissions import Purpose, find
from history.pages.session_access import number_in
from history.transcripts.timeline import timeline_of


@login_required
@never_cache
@require_safe
def timeline(request: HttpRequest, session_id: UUID) -> HttpResponse:
    session = find(request.user, session_id, Purpose.LIST)
    if session is None:
        raise Http404
    context = {"session": session, "timeline": timeline_of(session, before=number_in(request.GET, "before"))}
    return render(request, "history/timeline/page.html", context)
