"""The house's own pages: home, and two answers for whoever watches over the server."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from history.selectors import sessions_visible_to
from project import readiness
from project.accounts.signed_in import SignedInRequest

NEWEST = 20


@login_required
def home(request: SignedInRequest) -> HttpResponse:
    sessions = sessions_visible_to(request.user)[:NEWEST]
    return render(request, "home.html", {"sessions": sessions, "history_is_on": settings.CHAT_HISTORY_ENABLED})


@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers. Says nothing of the database: restarting us would not mend it."""
    return JsonResponse({"alive": True})


@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """Whether to send people here. The database's own words stay in the log: they may name hosts and users."""
    if readiness.database_problem():
        return JsonResponse({"ready": False, "missing": ["database"]}, status=503)
    unapplied = readiness.unapplied_migrations()
    missing = [f"migration {name}" for name in unapplied]
    return JsonResponse({"ready": not missing, "missing": missing}, status=503 if missing else 200)
