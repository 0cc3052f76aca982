"""The panel beside a conversation, and the few things about a session that its owner sets there."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from history.access.access_log import mark_readings_seen
from history.http.htmx import HtmxRequest
from history.pages.session_access import session_or_404
from history.record import recorder
from relay.models import Agent, Run
from relay.pages.chat.choices import pickers_for
from relay.pages.panel.details import panel_of
from relay.pages.sidebar.views import own_session


@login_required
@never_cache
@require_safe
def panel(request: HttpRequest, session_id: UUID) -> HttpResponse:
    session = session_or_404(request.user, session_id)
    context = {
        "session": session,
        "panel": panel_of(session, reader=request.user),
        "pickers": pickers_for(session),
        "may_compose": session.owner_id == request.user.pk,
        "run": Run.objects.filter(session=session.pk, ended_at=None).first(),
    }
    return render(request, "chat/_panel.html", context)


@login_required
@require_POST
def readings_seen(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    """The owner has seen who read the session: the chip in the head goes."""
    session = own_session(request, session_id)
    mark_readings_seen(session)
    return HttpResponse() if request.htmx else redirect(f"{session.get_absolute_url()}#who-read")


@login_required
@require_POST
def change_settings(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Title and agent. A title of nothing changes nothing, and neither does an agent that is not there."""
    session = own_session(request, session_id)
    if title := request.POST.get("title", "").strip():
        recorder.rename(session, title=title)
    agent = request.POST.get("agent", "")
    if agent != session.agent and Agent.objects.filter(name=agent).exists():
        recorder.assign(session, agent=agent)
    return redirect(session)
