"""ETags of REST responses, and links to the next and previous page of lists.

A response has an ETag. If-None-Match with the same tag is answered by 304; If-Match refuses a change if the object has
changed. Tags are compared without the W/ that compression adds. A page is `{"next", "previous", "results"}`, as DRF's
own `CursorPagination` answers it; the links repeat the query of the request.
"""

from hashlib import sha256

from django.utils.http import parse_etags
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from history.api.errors import Changed

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
        raise Changed


def _has_tag(header: str, tag: str) -> bool:
    tags = parse_etags(header)
    return "*" in tags or tag in {one.removeprefix("W/") for one in tags}


def page_link(request: Request, **position: str | int | None) -> str | None:
    """The URL of this list at another position; None if the position is None."""
    [(name, value)] = position.items()
    return None if value is None else str(replace_query_param(request.build_absolute_uri(), name, str(value)))


def message_link(request: Request, **position: int | None) -> str | None:
    """As `page_link`, for messages. The next page of a range (`after` with `before`) ends where the range ends."""
    link = page_link(request, **position)
    is_range = {"before", "after"} <= set(request.query_params)
    if link is None or (is_range and "after" in position):
        return link
    return str(remove_query_param(link, "after" if "before" in position else "before"))
