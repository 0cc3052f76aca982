"""`/metrics` for Prometheus. `PARLEY_METRICS` sets who may read it; others get a 404."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access import keys
from history.access.key_cache import ApiKeyError
from relay.status import metrics as numbers

BEARER = "bearer "
ADMIN, OPEN = "admin", "open"


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    authorization = request.headers.get("Authorization", "")
    if settings.PARLEY_METRICS == ADMIN and authorization:
        if refusal := _refusal(authorization):
            return HttpResponse(refusal, status=401, headers={"WWW-Authenticate": 'Bearer realm="Parley"'})
    elif settings.PARLEY_METRICS != OPEN and not (settings.PARLEY_METRICS == ADMIN and request.user.is_staff):
        raise Http404
    return HttpResponse(numbers.text(), content_type=numbers.CONTENT_TYPE)


def _refusal(authorization: str) -> str:
    """Error text for a key without access: the operator reads it in the log of the scraper."""
    raw = authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""
    try:
        keys.authenticate(raw, scope="admin")
    except ApiKeyError as error:
        return str(error)
    return ""
