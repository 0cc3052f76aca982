"""Size limit of the request body, declared on the view that reads it.

    @accepts_body(lambda: settings.PARLEY_IMPORT_MB * MEGABYTE)
    def imports(request): ...

Class-based views set `body_limit = staticmethod(...)`. `project.server.bodies` enforces it before the body is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.urls import Resolver404, resolve

MEGABYTE = 1024 * 1024
# What a form puts around its files.
FORM_OVERHEAD = MEGABYTE

View = TypeVar("View", bound=Callable[..., Any])


def accepts_body(limit: Callable[[], int]) -> Callable[[View], View]:
    """Let this view receive bodies of up to `limit()` bytes from a known sender."""

    def decorate(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]
        return view

    return decorate


def body_limit_of(path: str) -> int | None:
    """The limit that the view of this path declares."""
    try:
        view = resolve(path).func
    except Resolver404:
        return None
    declared = getattr(view, "body_limit", None) or getattr(getattr(view, "view_class", None), "body_limit", None)
    return declared() if declared is not None else None
