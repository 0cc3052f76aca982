"""What was found as ids, for lists that show rows in their own way: the admin, exports of a search."""

from __future__ import annotations

from uuid import UUID

from history.access.permissions import Viewer
from history.record import search_rows
from history.search.finding import Filters, asked_by, rounds

MOST = 300


def found_messages(viewer: Viewer, query: str, *, filters: Filters = Filters(), most: int = MOST) -> list[int]:  # noqa: B008 - frozen
    """The newest messages that match and that the viewer may read, by id, newest recorded first."""
    return [message for message, _session in _found(viewer, query, filters, most)]


def found_sessions(viewer: Viewer, query: str, *, filters: Filters = Filters(), most: int = MOST) -> list[UUID]:  # noqa: B008 - frozen
    """The sessions of the newest messages that match; so many messages are looked at."""
    return list(dict.fromkeys(session for _message, session in _found(viewer, query, filters, most)))


def _found(viewer: Viewer, query: str, filters: Filters, most: int) -> list[tuple[int, UUID]]:
    asked = asked_by(viewer, query, filters)
    found: list[tuple[int, UUID]] = []
    if asked is None:
        return found
    for step in rounds(asked, "m.session_id", size=most):
        found += [(search_rows.message_of(row_id), _uuid(session)) for row_id, session in step.found]
        if len(found) >= most:
            break
    return found[:most]


def _uuid(value: UUID | str) -> UUID:
    """SQLite has ids as texts."""
    return value if isinstance(value, UUID) else UUID(value)
