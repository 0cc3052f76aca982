"""Health checks and error pages."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from django.views import defaults
from django.views.decorators.cache import never_cache

from history.api.errors import failure, is_api
from project.server import readiness
from relay.gateway.call import cancellation


@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """Liveness. The database is left out: a restart of the process would not repair it."""
    return JsonResponse({"alive": True})


@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """Readiness. The error of the database stays in the log, because it may name hosts and users."""
    if cancellation.is_stopping():
        missing = ["this process is stopping"]
    elif readiness.database_problem():
        missing = ["database"]
    else:
        missing = [f"migration {name}" for name in readiness.unapplied_migrations()]
    return JsonResponse({"ready": not missing, "missing": missing}, status=503 if missing else 200)


def _error_view(status: int, page: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Under /api/ errors are JSON, elsewhere they are pages."""

    def view(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
        # Django's pages look for a CSRF token in the form, and would fail on a form that cannot be parsed.
        if not hasattr(request, "_post"):
            request._mark_post_parse_error()  # type: ignore[attr-defined]
        if is_api(request):
            return failure(status)
        return page(request, exception) if exception else page(request)

    return view


bad_request = _error_view(400, defaults.bad_request)
not_permitted = _error_view(403, defaults.permission_denied)
not_found = _error_view(404, defaults.page_not_found)
server_error = _error_view(500, defaults.server_error)


class NotAllowedMiddleware(MiddlewareMixin):
    """A page for visitors who open the address of a form. Django's own response is empty."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_empty = isinstance(response, HttpResponseNotAllowed) and not response.content
        if request.method != "GET" or not is_empty:
            return response
        page = render(request, "405.html", status=405)
        page.headers["Allow"] = response.headers["Allow"]
        return page
