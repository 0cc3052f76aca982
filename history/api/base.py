"""ApiView, the base of all REST views: JSON bodies, the viewer, the reason, session lookups, ETags and page links.

A response has an ETag. If-None-Match with the same tag is answered by 304; If-Match refuses a change if the object has
changed. Tags are compared without the W/ that compression adds. A page is `{"next", "previous", "results"}`, as DRF's
own `CursorPagination` answers it; the links repeat the query of the request.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import IO, Any, ClassVar
from uuid import UUID

from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.views import APIView

from history.access import permissions, reasons
from history.access.permissions import Purpose, Viewer
from history.api import errors
from history.api.authentication import CookieAuthentication, HasScope, KeyAuthentication, PerMinute
from history.models import ApiKey, Session

BODY_BYTES = 65_536
REASON_HEADER, CSRF_HEADER = "X-Parley-Reason", "X-CSRFToken"


class JsonOnly(DefaultContentNegotiation):
    """There is one format, so the Accept header is ignored."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        only = next(iter(renderers))
        return only, str(only.media_type)


class SmallJsonParser(BaseParser):
    """JSON that is not larger than any change can be."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        content = stream.read(BODY_BYTES + 1)
        if len(content) > BODY_BYTES:
            raise errors.RequestTooLarge(_("The body is larger than %(most)d bytes.") % {"most": BODY_BYTES})
        try:
            return json.loads(content, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:  # which UnicodeDecodeError is
            raise ParseError(_("The body is not valid JSON.")) from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class ApiView(APIView):
    """`scopes`: the scope that a key must have for each method. `parameters` are those of the query, parsed."""

    authentication_classes: Sequence[Any] = (KeyAuthentication, CookieAuthentication)
    permission_classes: Sequence[Any] = (HasScope,)
    throttle_classes: Sequence[Any] = (PerMinute,)
    renderer_classes: Sequence[Any] = (JSONRenderer,)
    parser_classes = (SmallJsonParser,)
    content_negotiation_class = JsonOnly
    metadata_class = None
    scopes: ClassVar[Mapping[str, str]] = {"GET": "read"}
    parameters: dict[str, Any]

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return errors.handle_exception

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """A response is for one caller, and caches have to revalidate it."""
        response = super().finalize_response(request, response, *args, **kwargs)
        response.setdefault("Cache-Control", "private, no-cache")
        patch_vary_headers(response, ["Authorization", "Cookie", "X-Api-Key"])
        return response


def viewer_of(request: Request) -> Viewer:
    """The key if there is one: it may see less than its owner."""
    return key_of(request) or request.user


def key_of(request: Request) -> ApiKey | None:
    return request.auth if isinstance(request.auth, ApiKey) else None


def reason_of(request: Request) -> str:
    """The reason for reading a session of another user. Headers are ASCII; the parameter takes any text.

    With a link of another site the browser sends its cookie, but no header: then the parameter is ignored.
    """
    is_deliberate = key_of(request) or CSRF_HEADER in request.headers
    reason = request.query_params.get("reason", "") if is_deliberate else ""
    return str(reason or request.headers.get(REASON_HEADER, ""))


def session_for(request: Request, session_id: str | UUID, purpose: Purpose) -> Session:
    """404 for a session that the viewer may not list, 403 if the purpose is not permitted."""
    viewer = viewer_of(request)
    session = permissions.find(viewer, session_id, purpose)
    if session is not None:
        return session
    raise errors.PermissionRefused if permissions.find(viewer, session_id, Purpose.LIST) else errors.ResourceNotFound


def open_session(request: Request, session_id: str | UUID) -> Session:
    session = reasons.find_opened(viewer_of(request), session_id, reason=reason_of(request))
    if session is None:
        raise errors.ResourceNotFound
    return session


FORM = "2"  # version of the responses; another one makes all tags new


def tag_of(*facts: object) -> str:
    digest = sha256(repr((FORM, *facts)).encode("utf-8", "replace")).hexdigest()
    return f'"{digest[:32]}"'


def tagged(request: Request, body: object) -> Response:
    """The response with its ETag, or 304 if the client has it."""
    response = with_tag(body)
    return unchanged(response["ETag"]) if is_known(request, response["ETag"]) else response


def with_tag(body: object) -> Response:
    return Response(body, headers={"ETag": tag_of(JSONRenderer().render(body))})


def unchanged(tag: str) -> Response:
    return Response(status=304, headers={"ETag": tag})


def is_known(request: Request, tag: str) -> bool:
    return _has_tag(request.headers.get("If-None-Match", ""), tag)


def refuse_if_changed(request: Request, body: object) -> None:
    header = request.headers.get("If-Match", "")
    if header and not _has_tag(header, tag_of(JSONRenderer().render(body))):
        raise errors.PreconditionFailed


def _has_tag(header: str, tag: str) -> bool:
    tags = parse_etags(header)
    return "*" in tags or tag in {one.removeprefix("W/") for one in tags}


def page_link(request: Request, **position: str | int | None) -> str | None:
    [(name, value)] = position.items()
    return None if value is None else str(replace_query_param(request.build_absolute_uri(), name, str(value)))


def message_link(request: Request, **position: int | None) -> str | None:
    """As `page_link`, for messages. The next page of a range (`after` with `before`) ends where the range ends."""
    link = page_link(request, **position)
    is_range = {"before", "after"} <= set(request.query_params)
    if link is None or (is_range and "after" in position):
        return link
    return str(remove_query_param(link, "after" if "before" in position else "before"))
