"""Helpers of views: htmx requests, pages of users and staff, downloads and the size limit of the request body.

`request.htmx` is set by django-htmx's middleware; `HtmxRequest` declares it for the type checker. Views with a larger
body use `@accepts_body(lambda: …)` or `body_limit`; `project.server.bodies` enforces it before the body is read.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.urls import Resolver404, resolve
from django.utils.http import content_disposition_header, url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.middleware import HtmxDetails

from history.exporting import Export

MEGABYTE = 1024 * 1024
FORM_OVERHEAD = MEGABYTE  # what a form puts around its files

View = TypeVar("View", bound=Callable[..., Any])


class HtmxRequest(HttpRequest):
    htmx: HtmxDetails


def wants_fragment(request: HtmxRequest) -> bool:
    """Whether htmx swaps the response into a page. A boosted link replaces the whole page."""
    return bool(request.htmx) and not request.htmx.boosted


def is_own_url(request: HttpRequest, url: str) -> bool:
    """Whether a URL from a form is one of this server, and safe to redirect to."""
    return url_has_allowed_host_and_scheme(url, allowed_hosts={request.get_host()}, require_https=request.is_secure())


def user_page(view: View) -> View:
    """A page that signed-in users read. Browsers must not keep it."""
    return login_required(never_cache(require_safe(view)))


def user_form(view: View) -> View:
    return login_required(never_cache(require_http_methods(["GET", "HEAD", "POST"])(view)))


def user_action(view: View) -> View:
    return login_required(require_POST(view))


def staff_only(view: View) -> View:
    """404 for users who are not staff."""

    @never_cache
    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if not request.user.is_staff:
            raise Http404
        return view(request, *args, **kwargs)

    return cast(View, guarded)


def download(export: Export) -> StreamingHttpResponse:
    """A stream that is produced as fast as it is sent."""
    disposition = content_disposition_header(as_attachment=True, filename=export.file_name) or "attachment"
    headers = {"Content-Disposition": disposition, "X-Content-Type-Options": "nosniff"}
    return StreamingHttpResponse(export, content_type=export.content_type, headers=headers)


def accepts_body(limit: Callable[[], int]) -> Callable[[View], View]:
    """Let this view receive bodies of up to `limit()` bytes from a known sender."""

    def decorate(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]
        return view

    return decorate


def body_limit_of(path: str) -> int | None:
    try:
        view = resolve(path).func
    except Resolver404:
        return None
    declared = getattr(view, "body_limit", None) or getattr(getattr(view, "view_class", None), "body_limit", None)
    return declared() if declared is not None else None
