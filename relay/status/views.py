"""`/metrics` for Prometheus. Who may read it is for `PARLEY_METRICS` to say; for everybody else it is not there."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access import keys
from history.access.key_cache import ApiKeyError
from relay.status import metrics as numbers

BEARER = "bearer "
OFF, ADMIN, OPEN = "off", "admin", "open"


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    given = request.headers.get("Authorization", "")
    if settings.PARLEY_METRICS == ADMIN and given:
        if refusal := _refusal(given):
            return HttpResponse(refusal, status=401, headers={"WWW-Authenticate": 'Bearer realm="Parley"'})
    elif settings.PARLEY_METRICS != OPEN and not (settings.PARLEY_METRICS == ADMIN and _is_staff(request)):
        raise Http404
    return HttpResponse(numbers.text(), content_type=numbers.CONTENT_TYPE)


def _refusal(given: str) -> str:
    """Why the key does not open this; a scraper's log is read by whoever sets it up."""
    raw = given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""
    try:
        keys.authenticate(raw, scope="admin")
    except ApiKeyError as error:
        return str(error)
    return ""


def _is_staff(request: HttpRequest) -> bool:
    return request.user.is_authenticated and request.user.is_staff
