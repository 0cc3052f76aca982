"""The OpenAPI schema at `/api/schema` and its reference page at `/api/docs`; both are public.

The schema is made from parameters and serializers, by the decorator `documented` on every method of a view.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.hooks import postprocess_schema_enum_id_removal
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.renderers import BaseRenderer, JSONRenderer, TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from history.api.authentication import CookieAuthentication
from history.api.base import ApiView, tagged
from history.api.fields import LARGEST
from history.api.parameters import QueryParameters, ReasonParameters
from history.api.serializers import ErrorSerializer

STATUSES = {
    304: "Not changed since the version in `If-None-Match`.",
    400: "A parameter or field is not valid; `fields` names it.",
    401: "Not signed in, or the API key is not valid.",
    403: "A scope, a permission or a reason is missing.",
    404: "Not found, or not visible to you.",
    409: "Not possible at the moment; the message says why.",
    412: "Changed since the version in `If-Match`.",
    413: "The request body is too large.",
    415: "The content type of the body is not supported.",
    429: "Too many requests in this minute. Wait for `Retry-After` seconds.",
    503: "The database is not available. Try again in a few seconds.",
}
ALWAYS = (400, 401, 403, 404, 429, 503)

SEQ = {"type": "integer", "minimum": 1, "maximum": LARGEST}
_path = partial(OpenApiParameter, location=OpenApiParameter.PATH)
PATH = {name: _path(name, UUID) for name in ("session_id", "exchange_id", "import_id")}
PATH["seq"] = _path("seq", SEQ, description="Number of an entry.")
_header = partial(OpenApiParameter, type=str, location=OpenApiParameter.HEADER)
IF_NONE_MATCH = _header("If-None-Match", description="The `ETag` of the response that you have.")
IF_MATCH = _header(
    "If-Match", description="The `ETag` of the version that you have read. The request fails if it has changed."
)
REASON = _header("X-Parley-Reason", description="Reason for reading a session of another user; its owner sees it.")
_SETUP = re.compile(r"^## Operations$.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OPERATION = re.compile(
    r"^`(?P<name>[A-Z]+ /api/[^`\n]+)`\n(?:(?!^##).)*?^```sh\n(?P<curl>.*?)^```\n+```python\n(?P<python>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
DONE = OpenApiResponse(description="Done.")


def documented(
    name: str,
    summary: str,
    response: type[Serializer[Any]] | dict[tuple[int, str], OpenApiTypes] | None,
    parameters: type[QueryParameters] = QueryParameters,
    *,
    body: type[Serializer[Any]] | dict[str, object] | None = None,
    has_tag: bool = False,
    statuses: Iterable[int] = (),
    success: int = 200,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Describe a method of a view, and parse its parameters into `self.parameters`; its docstring is the description.

    `response` is None for a status alone, or several by status and media type. `has_tag`: it has an ETag.
    """
    success_responses = response if isinstance(response, dict) else {success: response or DONE}
    problems = {
        status: OpenApiResponse(None if status == 304 else ErrorSerializer, description=STATUSES[status])
        for status in sorted({*ALWAYS, *statuses, *((304,) if has_tag else ())})
    }
    headers = [IF_NONE_MATCH] if has_tag else []
    headers += [IF_MATCH] if 412 in problems else []
    headers += [REASON] if issubclass(parameters, ReasonParameters) else []

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def parsed(self: ApiView, request: Request, **path: Any) -> Any:
            self.parameters = parameters.parse(request)
            return method(self, request, **path)

        path = [PATH[part] for part in signature(method).parameters if part in PATH]
        return extend_schema(
            operation_id=name,
            summary=summary,
            description=" ".join((method.__doc__ or "").split()),
            parameters=[*path, *([parameters] if parameters().fields else []), *headers],
            request=body,
            responses={**success_responses, **problems},
            tags=["history"],
        )(parsed)

    return decorate


def drop_slash_urls(endpoints: list[tuple[str, str, str, Any]], **_kwargs: object) -> list[tuple[str, str, str, Any]]:
    """URLs work with and without a slash at the end; the schema has them once."""
    return [endpoint for endpoint in endpoints if not endpoint[0].endswith("/")]


@cache
def schema() -> dict[str, Any]:
    """Made once: it is the same for all callers."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


def tidy_schema(result: dict[str, Any], generator: SchemaGenerator, **_kwargs: object) -> dict[str, Any]:
    """Add examples, refuse unknown fields of bodies and NUL in texts, and remove the generator's internal notes."""
    for name in ("PatchedSessionChange", "SummaryRequest"):
        if name in result["components"]["schemas"]:
            result["components"]["schemas"][name]["additionalProperties"] = False
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            operation["x-codeSamples"] = samples_of(method, path)
            for parameter in operation.get("parameters", ()):
                _refuse_nul(parameter["schema"])
            if "application/octet-stream" in operation.get("requestBody", {}).get("content", ()):
                operation["requestBody"]["required"] = True
    tidy: dict[str, Any] = postprocess_schema_enum_id_removal(result, generator)  # type: ignore[no-untyped-call]
    return tidy


def _refuse_nul(schema: dict[str, Any]) -> None:
    """The fields refuse NUL in texts."""
    if "items" in schema:
        _refuse_nul(schema["items"])
    if schema.get("type") == "string" and not {"pattern", "enum", "format"} & set(schema):
        schema["pattern"] = r"^[^\u0000]*$"


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "history.api.authentication.KeyAuthentication"
    name = ["bearerKey", "headerKey"]

    def get_security_requirement(self, auto_schema: object) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: object) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key with the required scopes."},
            {
                "type": "apiKey",
                "in": "header",
                "name": "x-api-key",
                "description": "The same API key in another header.",
            },
        ]


class CookieScheme(SessionScheme):  # type: ignore[no-untyped-call]
    target_class = "history.api.authentication.CookieAuthentication"
    name = "cookie"


class PublicView(ApiView):
    """A view without authentication that is not part of the schema itself."""

    schema = None
    authentication_classes: Sequence[Any] = ()
    permission_classes = ()
    throttle_classes = ()


class SchemaView(PublicView):
    def get(self, request: Request) -> Response:
        return tagged(request, schema())


class ReferenceView(PublicView, SpectacularSwaggerView):
    """Swagger UI from drf-spectacular's sidecar. Signed-in users see the navigation of the other pages."""

    authentication_classes = (CookieAuthentication,)
    renderer_classes: list[type[BaseRenderer]] = [TemplateHTMLRenderer]
    template_name = "history/api_reference.html"
    url_name = "api:schema"

    def handle_exception(self, exc: Exception) -> Response:
        """Errors are JSON, as everywhere under /api/."""
        self.request.accepted_renderer = JSONRenderer()
        self.request.accepted_media_type = JSONRenderer.media_type
        return super().handle_exception(exc)


@cache
def read_examples() -> tuple[str, dict[str, tuple[str, str]]]:
    """The setup of the examples for Python, and those for curl and Python by method and path, all as in the docs."""
    text = (Path(settings.BASE_DIR) / "docs" / "rest.md").read_text(encoding="utf-8")
    setup = _SETUP.search(text)
    examples = {one["name"]: (one["curl"].strip(), one["python"].strip()) for one in _OPERATION.finditer(text)}
    return setup[1].strip() if setup else "", examples


def operation_name(method: str, path: str) -> str:
    """As in the docs: `GET /api/history/sessions/<session_id>`."""
    return f"{method.upper()} {path}".replace("{", "<").replace("}", ">")


def samples_of(method: str, path: str) -> list[dict[str, str]]:
    """As `x-codeSamples`, an extension of OpenAPI that most readers of schemas show."""
    setup, examples = read_examples()
    curl, python = examples[operation_name(method, path)]
    return [
        {"lang": "Shell", "label": "curl", "source": curl},
        {"lang": "Python", "label": "Python", "source": f"{setup}\n\n{python}"},
    ]
