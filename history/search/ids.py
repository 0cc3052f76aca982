"""Ids of messages and sessions that match a search, for lists that show rows in their own way."""

from uuid import UUID

from history.access.permissions import Viewer
from history.record import search_rows
from history.search.finding import LARGEST_ROUND, as_uuid, build_request, rounds, take
from history.search.session_query import SessionQuery

MOST_HITS = 300
MOST_SESSIONS = 2_000


def find_newest(viewer: Viewer, query: str, *, filters: SessionQuery = SessionQuery()) -> dict[int, UUID]:
    """The newest messages that match and that the viewer may read, newest first, with their sessions."""
    request = build_request(viewer, query, filters)
    rows = take(request, "m.session_id", MOST_HITS)[0] if request else []
    return {search_rows.message_of(row_id): as_uuid(session) for row_id, session in rows}


def find_session_ids(viewer: Viewer, query: str) -> tuple[set[UUID], bool]:
    """The sessions with the newest hits, up to 2,000 of them, and whether these are all."""
    ids: set[UUID] = set()
    read_on: int | None = None
    request = build_request(viewer, query, SessionQuery())
    for found, rest in rounds(request, "m.session_id", size=LARGEST_ROUND) if request else ():
        read_on = rest
        ids |= {as_uuid(session) for _row, session in found}
        if len(ids) > MOST_SESSIONS:
            return ids, False
    return ids, read_on is None
