"""JSON in, JSON out, whatever the headers ask for: there is one form, so there is nothing to negotiate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from history.api.errors import RequestTooLarge

BODY_BYTES = 65_536


class OneForm(BaseContentNegotiation):
    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """None: 415."""
        wanted = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type in (wanted, "*/*")), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        only = next(iter(renderers))
        return only, str(only.media_type)


class SmallJson(BaseParser):
    """An object of JSON that is no larger than any change here can be."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        content = stream.read(BODY_BYTES + 1)
        if len(content) > BODY_BYTES:
            raise RequestTooLarge(_("The body has more than %(most)d bytes.") % {"most": BODY_BYTES})
        try:
            return json.loads(content, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:  # which UnicodeDecodeError is
            raise ParseError(_("The body is not valid JSON.")) from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
