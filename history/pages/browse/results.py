"""What an address finds: sessions by their last activity, or messages by the search engine, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from history.access.permissions import Purpose, Viewer, sessions_for
from history.access.reasons import readable_without_reason
from history.models import ApiKey, Session
from history.pages.browse.facets import AMONG, TOOL_SESSIONS, Spread, spread_of_sessions, tools_of
from history.pages.browse.query import BrowseQuery
from history.record.listing import find_by_title, list_sessions
from history.search import Filters, Hit, newest_hits, search

PAGE = 30
HITS = 20
TITLES = 5
TITLES_AMONG = 1_000
NOBODY = (-1,)  # whom a name means that nobody has


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Messages of one session on this page of results. Their texts are shown where the session is open."""

    session: Session
    hits: tuple[Hit, ...]
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    sessions: tuple[Session, ...] = ()
    titles: tuple[Session, ...] = ()
    groups: tuple[Group, ...] = ()
    next_before: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.sessions or self.titles or self.groups)


def find(viewer: Viewer, asked: BrowseQuery) -> Found:
    return _find_messages(viewer, asked) if asked.is_search else _list_sessions(viewer, asked)


def spread(viewer: Viewer, asked: BrowseQuery) -> Spread:
    if not asked.is_search:
        return spread_of_sessions(_listed(viewer, asked).filter(asked.list_filters.conditions()))
    newest = newest_hits(viewer, asked.words, filters=search_filters(asked), among=AMONG)
    sessions = [_uuid(session) for session in newest.sessions]
    return Spread(
        counts={**newest.counts, "tool": tools_of(sessions[:TOOL_SESSIONS])},
        number=newest.number,
        sessions=len(sessions),
        is_all=newest.is_all,
    )


def number(viewer: Viewer, asked: BrowseQuery) -> Spread:
    """As `spread`, of sessions without how they are spread: for who only wants to know how many there are."""
    if asked.is_search:
        return spread(viewer, asked)
    found = _listed(viewer, asked).filter(asked.list_filters.conditions()).order_by()[: AMONG + 1].count()
    return Spread(counts={}, number=min(found, AMONG), sessions=min(found, AMONG), is_all=found <= AMONG)


def _list_sessions(viewer: Viewer, asked: BrowseQuery) -> Found:
    page = list_sessions(_listed(viewer, asked), filters=asked.list_filters, before=asked.cursor, limit=PAGE)
    return Found(sessions=tuple(page.sessions), next_before=str(page.next_before or ""))


def _listed(viewer: Viewer, asked: BrowseQuery) -> QuerySet[Session]:
    """Conversations; notebooks have a page of their own."""
    sessions = sessions_for(viewer, Purpose.LIST).exclude(source=Session.Source.NOTEBOOK)
    return sessions.filter(archived_at__isnull=not asked.archived)


def _find_messages(viewer: Viewer, asked: BrowseQuery) -> Found:
    results = search(viewer, asked.words, filters=search_filters(asked), before=asked.message, limit=HITS)
    groups = tuple(_groups(viewer, results.hits))
    titles = _titles(viewer, asked) if asked.message is None and asked.words else ()
    listed = {group.session.pk for group in groups}
    return Found(
        titles=tuple(session for session in titles if session.pk not in listed),
        groups=groups,
        next_before="" if results.next_before is None else str(results.next_before),
    )


def _titles(viewer: Viewer, asked: BrowseQuery) -> Sequence[Session]:
    """Sessions by their titles: one's own, and those that were opened with a reason."""
    if asked.tool or asked.status:
        return []
    listed = sessions_for(viewer, Purpose.LIST).exclude(source=Session.Source.NOTEBOOK)
    listed = listed.filter(asked.list_filters.conditions())
    return find_by_title(listed, asked.words, limit=TITLES, among=TITLES_AMONG)


def _groups(viewer: Viewer, hits: Sequence[Hit]) -> Iterable[Group]:
    ids = {hit.session_id for hit in hits}
    sessions = Session.objects.select_related("owner", "api_key").in_bulk(ids)
    shown = readable_without_reason(viewer, ids)
    of_session: dict[UUID, list[Hit]] = {}
    for hit in hits:
        of_session.setdefault(hit.session_id, []).append(hit)
    for pk, group in of_session.items():
        if pk in sessions:
            if pk not in shown:
                sessions[pk].hide_title()
            yield Group(session=sessions[pk], hits=tuple(group), is_open=pk in shown)


def search_filters(asked: BrowseQuery) -> Filters:
    return Filters(
        owner=_owners(asked.owner),
        key=_keys(asked.key),
        source=asked.source,
        agent=asked.agent,
        model=asked.model,
        tool=asked.tool,
        status=asked.status,
        has_error=asked.has_error or None,
        since=asked.begins,
        until=asked.ends,
    )


def _owners(names: Sequence[str]) -> tuple[int, ...]:
    if not names:
        return ()
    return tuple(get_user_model().objects.filter(username__in=names).values_list("pk", flat=True)) or NOBODY


def _keys(prefix: str) -> tuple[int, ...]:
    if not prefix:
        return ()
    return tuple(ApiKey.objects.filter(prefix=prefix).values_list("pk", flat=True)) or NOBODY


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)
