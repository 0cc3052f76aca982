"""In which sessions something was said: for lists that are narrowed by words."""

from __future__ import annotations

from uuid import UUID

from history.record.selectors import Viewer
from history.search.finding import LARGEST_ROUND, Filters, asked_by, rounds

MOST = 2_000


def sessions_with(
    viewer: Viewer,
    query: str,
    *,
    filters: Filters = Filters(),  # noqa: B008 - frozen
) -> tuple[set[UUID], bool]:
    """The sessions with the newest hits, up to 2,000 of them, and whether these are all."""
    asked = asked_by(viewer, query, filters)
    found: set[UUID] = set()
    if asked is None:
        return found, True
    read_on: int | None = None
    for step in rounds(asked, "m.session_id", size=LARGEST_ROUND):
        found |= {row[1] if isinstance(row[1], UUID) else UUID(row[1]) for row in step.found}
        read_on = step.read_on
        if len(found) > MOST:
            return found, False
    return found, read_on is None
