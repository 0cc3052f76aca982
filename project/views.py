"""Two answers for whoever watches over the server."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache

from project import readiness


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
