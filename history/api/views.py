"""What every view of the API has in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.utils.cache import patch_vary_headers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from history.api.authentication import CookieAuthentication, KeyAuthentication, MayAsk
from history.api.errors import handled
from history.api.throttling import PerMinute
from history.api.transport import OneForm, SmallJson
from history.models import ApiKey
from history.record.selectors import Viewer

REASON_HEADER, CSRF_HEADER = "X-Parley-Reason", "X-CSRFToken"


class ApiView(APIView):
    """`scopes`: what a key must have for each method."""

    authentication_classes: Sequence[Any] = (KeyAuthentication, CookieAuthentication)
    permission_classes: Sequence[Any] = (MayAsk,)
    throttle_classes: Sequence[Any] = (PerMinute,)
    renderer_classes: Sequence[Any] = (JSONRenderer,)
    parser_classes = (SmallJson,)
    content_negotiation_class = OneForm
    metadata_class = None
    scopes: ClassVar[Mapping[str, str]] = {"GET": "read"}

    def get_exception_handler(self) -> Any:
        return handled

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """An answer is for whoever asked, and for nobody's cache without asking again."""
        response = super().finalize_response(request, response, *args, **kwargs)
        response.setdefault("Cache-Control", "private, no-cache")
        patch_vary_headers(response, ["Authorization", "Cookie", "X-Api-Key"])
        return response


def viewer_of(request: Request) -> Viewer:
    """The key where there is one: it may see less than its owner."""
    return request.auth if isinstance(request.auth, ApiKey) else request.user


def reason_of(request: Request) -> str:
    """Why somebody wants to read what is not theirs. Headers are ASCII; whoever needs more takes the parameter.

    Behind a link that somebody else made the browser sends its cookie, but no header: there the parameter is not heard.
    """
    is_meant = isinstance(request.auth, ApiKey) or CSRF_HEADER in request.headers
    given = request.query_params.get("reason", "") if is_meant else ""
    return str(given or request.headers.get(REASON_HEADER, ""))
