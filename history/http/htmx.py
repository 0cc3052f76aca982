"""Requests of htmx, as django-htmx's middleware describes them.

`request.htmx` is set by `HtmxMiddleware`; `HtmxRequest` tells the type checker so.
"""

from __future__ import annotations

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class HtmxRequest(HttpRequest):
    htmx: HtmxDetails


def wants_fragment(request: HtmxRequest) -> bool:
    """Whether htmx swaps the response into a page. A boosted link replaces the whole page."""
    return bool(request.htmx) and not request.htmx.boosted
