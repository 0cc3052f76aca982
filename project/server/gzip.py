"""Texts travel compressed, pages and static files alike. Pictures are small already; part of a file stays as it is."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

TEXTS = ("text/", "application/json", "application/javascript", "image/svg+xml")


class CompressionMiddleware(GZipMiddleware):
    """Django's own adds random bytes, so that the length of a page says nothing about the secrets in it."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_text = response.get("Content-Type", "").startswith(TEXTS)
        return super().process_response(request, response) if is_text and response.status_code != 206 else response
