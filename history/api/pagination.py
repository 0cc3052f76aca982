"""Links to the next and previous page of REST lists, in DRF's envelope.

A page is `{"next", "previous", "results"}`, as DRF's own `CursorPagination` answers it. The links repeat the query of
the request, so a client follows them until one is null.
"""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.utils.urls import remove_query_param, replace_query_param


def page_link(request: Request, **position: Any) -> str | None:
    """The URL of this list at another position; None if the position is None."""
    [(name, value)] = position.items()
    if value is None:
        return None
    return str(replace_query_param(request.build_absolute_uri(), name, value))


def message_link(request: Request, **position: int | None) -> str | None:
    """As `page_link`, for messages. The next page of a range (`after` with `before`) ends where the range ends."""
    link = page_link(request, **position)
    is_range = {"before", "after"} <= set(request.query_params)
    if link is None or (is_range and "after" in position):
        return link
    return str(remove_query_param(link, "after" if "before" in position else "before"))
