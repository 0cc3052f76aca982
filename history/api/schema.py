"""The OpenAPI schema: made from the serializers, by the decorator that every method of a view carries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from history.api.answers import Error
from history.api.examples import samples_of
from history.api.fields import LARGEST
from history.api.query import QueryParameters, ReasonAsked

View = TypeVar("View", bound=Callable[..., Any])

STATUSES = {
    304: "Nothing has changed since `If-None-Match`.",
    400: "A parameter makes no sense: `fields` says which.",
    401: "Nobody is signed in, or the key is not valid.",
    403: "The scope or the right for it is missing, or a reason.",
    404: "There is no such thing, or you may not know of it.",
    409: "Not now: the message says why.",
    412: "It has changed since `If-Match`.",
    413: "The body is too large.",
    415: "The body is not of a type that is taken here.",
    429: "Too many requests in this minute: `Retry-After` says how long to wait.",
    503: "The database is away: try again in a few seconds.",
}
BODIES = ("PatchedSessionChange", "SummaryWish")
ALWAYS = (400, 401, 403, 404, 429, 503)

PATH = {
    "session_id": OpenApiParameter("session_id", UUID, OpenApiParameter.PATH),
    "exchange_id": OpenApiParameter("exchange_id", UUID, OpenApiParameter.PATH),
    "import_id": OpenApiParameter("import_id", UUID, OpenApiParameter.PATH),
    "seq": OpenApiParameter(
        "seq", {"type": "integer", "minimum": 1, "maximum": LARGEST}, OpenApiParameter.PATH, description="Of an entry."
    ),
}
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="The `ETag` of the answer that you have."
)
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description="The `ETag` of what you have read: refuse if it changed."
)
REASON = OpenApiParameter(
    "X-Parley-Reason", str, OpenApiParameter.HEADER, description="Why you want to read what is not yours."
)


def documented(
    name: str,
    summary: str,
    answer: Any,
    *,
    asked: type[QueryParameters],
    description: str,
    path: Iterable[str] = (),
    body: Any = None,
    has_tag: bool = False,
    statuses: Iterable[int] = (),
    success: int = 200,
) -> Callable[[View], View]:
    """`answer` None: nothing but a status; several: by status and media type. `has_tag`: it has an ETag."""
    given = {*ALWAYS, *statuses, *((304,) if has_tag else ())}
    told = {status: _problem(status) for status in sorted(given)}
    headers = [IF_NONE_MATCH] if has_tag else []
    headers += [IF_MATCH] if 412 in given else []
    headers += [REASON] if issubclass(asked, ReasonAsked) else []
    return extend_schema(
        operation_id=name,
        summary=summary,
        description=description,
        parameters=[*(PATH[part] for part in path), *([asked] if asked().fields else []), *headers],
        request=body,
        responses={**_answers(success, answer), **told},
        tags=["history"],
        extensions={"x-codeSamples": samples_of(name)},
    )


def _answers(success: int, answer: Any) -> dict[Any, Any]:
    return answer if isinstance(answer, dict) else {success: answer or OpenApiResponse(description="Done.")}


def _problem(status: int) -> OpenApiResponse:
    return OpenApiResponse(None if status == 304 else Error, description=STATUSES[status])


def without_twins(endpoints: list[tuple[str, str, str, Any]], **_kwargs: Any) -> list[tuple[str, str, str, Any]]:
    """Every address works with and without a slash at its end; the schema names it once."""
    return [endpoint for endpoint in endpoints if not endpoint[0].endswith("/")]


@cache
def schema() -> dict[str, Any]:
    """Made once: nothing in it depends on who asks."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


def tidied(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Whoever sends a body sends nothing but its fields; and notes of the generator to itself go."""
    for name in BODIES:
        if name in result["components"]["schemas"]:
            result["components"]["schemas"][name]["additionalProperties"] = False
    for operations in result["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _refuse_nul(parameter["schema"])
            if "application/octet-stream" in operation.get("requestBody", {}).get("content", ()):
                operation["requestBody"]["required"] = True
    tidy: dict[str, Any] = _without(result, "x-spec-enum-id")
    return tidy


def _refuse_nul(schema: dict[str, Any]) -> None:
    """No text has a NUL, as the fields themselves refuse it."""
    _refuse_nul(schema["items"]) if "items" in schema else None
    if schema.get("type") == "string" and not {"pattern", "enum", "format"} & set(schema):
        schema["pattern"] = r"^[^\u0000]*$"


def _without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, name) for key, item in value.items() if key != name}
    return [_without(item, name) for item in value] if isinstance(value, list) else value


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "history.api.authentication.KeyAuthentication"
    name = ["bearerKey", "headerKey"]

    def get_security_requirement(self, auto_schema: Any) -> Any:
        """Either of them."""
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: Any) -> Any:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key with the scopes that are needed."},
            {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same, in another header."},
        ]


class CookieScheme(SessionScheme):  # type: ignore[no-untyped-call]
    target_class = "history.api.authentication.CookieAuthentication"
    name = "cookie"
