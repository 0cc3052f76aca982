"""Ids of messages and sessions that match a search, for lists that show rows in their own way."""

from uuid import UUID

from history.access.permissions import Viewer
from history.record import search_rows
from history.search.finding import LARGEST_ROUND, build_request, rounds
from history.search.session_query import SessionQuery

MOST_HITS = 300
MOST_SESSIONS = 2_000


def find_message_ids(viewer: Viewer, query: str, *, filters: SessionQuery = SessionQuery()) -> list[int]:
    """The newest messages that match and that the viewer may read, newest first."""
    return [message for message, _session in _find(viewer, query, filters)]


def find_newest_session_ids(viewer: Viewer, query: str) -> list[UUID]:
    """The sessions of the newest messages that match."""
    return list(dict.fromkeys(session for _message, session in _find(viewer, query, SessionQuery())))


def _find(viewer: Viewer, query: str, filters: SessionQuery) -> list[tuple[int, UUID]]:
    found: list[tuple[int, UUID]] = []
    request = build_request(viewer, query, filters)
    for step in rounds(request, "m.session_id", size=MOST_HITS) if request else ():
        found += [(search_rows.message_of(row_id), _uuid(session)) for row_id, session in step.found]
        if len(found) >= MOST_HITS:
            break
    return found[:MOST_HITS]


def find_session_ids(viewer: Viewer, query: str, *, filters: SessionQuery = SessionQuery()) -> tuple[set[UUID], bool]:
    """The sessions with the newest hits, up to 2,000 of them, and whether these are all."""
    found: set[UUID] = set()
    read_on: int | None = None
    request = build_request(viewer, query, filters)
    for step in rounds(request, "m.session_id", size=LARGEST_ROUND) if request else ():
        found |= {_uuid(row[1]) for row in step.found}
        read_on = step.read_on
        if len(found) > MOST_SESSIONS:
            return found, False
    return found, read_on is None


def _uuid(value: UUID | str) -> UUID:
    """SQLite returns ids as text."""
    return value if isinstance(value, UUID) else UUID(value)
