"""Results of the browse page: sessions by last activity, or messages by the search engine, a page at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import QuerySet

from history.access.permissions import Purpose, Viewer, sessions_for
from history.access.reasons import readable_without_reason
from history.models import Session
from history.pages.browse.facets import AMONG, TOOL_SESSIONS, Spread, count_tools, spread_of_sessions
from history.pages.browse.query import BrowseQuery
from history.record.listing import ListCursor, find_by_title, list_sessions
from history.search import Hit, newest_hits, search

PAGE = 30
HITS = 20
TITLES = 5
TITLES_AMONG = 1_000


class HitGroup(NamedTuple):
    """Messages of one session on this page of results. Their texts are shown if the viewer has opened the session."""

    session: Session
    hits: tuple[Hit, ...]
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseResults:
    sessions: tuple[Session, ...] = ()
    titles: tuple[Session, ...] = ()
    groups: tuple[HitGroup, ...] = ()
    next_before: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.sessions or self.titles or self.groups)


def read_results(viewer: Viewer, query: BrowseQuery) -> BrowseResults:
    if query.is_search:
        return _find_messages(viewer, query)
    page = list_sessions(_listed(viewer, query), before=ListCursor.read_or_none(query.before), limit=PAGE)
    return BrowseResults(sessions=tuple(page.sessions), next_before=str(page.next_before or ""))


def count_spread(viewer: Viewer, query: BrowseQuery) -> Spread:
    if not query.is_search:
        return spread_of_sessions(_listed(viewer, query))
    counts, of_hits, is_all = newest_hits(viewer, query.words, filters=query.filters, among=AMONG)
    sessions = list(dict.fromkeys(of_hits))
    counts["tool"] = count_tools(sessions[:TOOL_SESSIONS])
    return Spread(counts=counts, number=len(of_hits), sessions=len(sessions), is_all=is_all)


def count_results(viewer: Viewer, query: BrowseQuery) -> Spread:
    """Like `count_spread`, but of sessions only their number."""
    if query.is_search:
        return count_spread(viewer, query)
    count = _listed(viewer, query).order_by()[: AMONG + 1].count()
    return Spread(counts={}, number=min(count, AMONG), sessions=min(count, AMONG), is_all=count <= AMONG)


def _conversations(viewer: Viewer, query: BrowseQuery) -> QuerySet[Session]:
    """Sessions within the filters. Notebooks have a page of their own."""
    return query.filters.apply(sessions_for(viewer, Purpose.LIST).exclude(source=Session.Source.NOTEBOOK))


def _listed(viewer: Viewer, query: BrowseQuery) -> QuerySet[Session]:
    return _conversations(viewer, query).filter(archived_at__isnull=not query.archived)


def _find_messages(viewer: Viewer, query: BrowseQuery) -> BrowseResults:
    page = search(viewer, query.words, filters=query.filters, before=query.message, limit=HITS)
    groups = tuple(_groups(viewer, page.hits))
    listed = {group.session.pk for group in groups}
    titles: Sequence[Session] = ()
    # Own sessions and those opened with a reason. Titles have no tool and no status.
    if query.message is None and query.words and not (query.tool or query.status):
        titles = find_by_title(_conversations(viewer, query), query.words, limit=TITLES, among=TITLES_AMONG)
    return BrowseResults(
        titles=tuple(session for session in titles if session.pk not in listed),
        groups=groups,
        next_before="" if page.next_before is None else str(page.next_before),
    )


def _groups(viewer: Viewer, hits: Sequence[Hit]) -> Iterable[HitGroup]:
    ids = {hit.session_id for hit in hits}
    sessions = Session.objects.select_related("owner", "api_key").in_bulk(ids)
    readable = readable_without_reason(viewer, ids)
    for pk in dict.fromkeys(hit.session_id for hit in hits):
        if pk in sessions:
            if pk not in readable:
                sessions[pk].hide_title()
            yield HitGroup(sessions[pk], tuple(hit for hit in hits if hit.session_id == pk), pk in readable)
