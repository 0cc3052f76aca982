"""Nothing is sent twice: an answer has a tag, and who names it with If-None-Match is told that nothing changed.

If-Match on a change asks for the opposite: only if it is still what I read. Tags are compared without the W/ that
compression puts before them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from django.utils.http import parse_etags
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from history.api.errors import Changed

FORM = "2"  # of the answers; another one makes all tags new


def tag_of(*facts: Any) -> str:
    digest = sha256(repr((FORM, *facts)).encode("utf-8", "replace")).hexdigest()
    return f'"{digest[:32]}"'


def tagged(request: Request, body: Any) -> Response:
    """The answer, or that it is the one they have."""
    response = answer_with_tag(body)
    return unchanged(response["ETag"]) if is_known(request, response["ETag"]) else response


def answer_with_tag(body: Any) -> Response:
    return Response(body, headers={"ETag": tag_of(JSONRenderer().render(body))})


def unchanged(tag: str) -> Response:
    return Response(status=304, headers={"ETag": tag})


def is_known(request: Request, tag: str) -> bool:
    return _names(request.headers.get("If-None-Match", ""), tag)


def refuse_if_changed(request: Request, body: Any) -> None:
    wanted = request.headers.get("If-Match", "")
    if wanted and not _names(wanted, tag_of(JSONRenderer().render(body))):
        raise Changed


def _names(header: str, tag: str) -> bool:
    given = parse_etags(header)
    return "*" in given or tag in {one.removeprefix("W/") for one in given}
