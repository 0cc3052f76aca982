"""OpenAPI schema at `/api/schema` and its reference page at `/api/docs`.

Both are public: the schema holds no secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.renderers import BaseRenderer, JSONRenderer, TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from history.api.authentication import CookieAuthentication
from history.api.etags import tagged
from history.api.schema import schema
from history.api.views import ApiView


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
