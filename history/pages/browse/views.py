"""The browse page /history/: search, narrow, select and export sessions. Every state is a URL."""

import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import push_url

from history.access.permissions import Purpose, Viewer, can_access_others, sessions_for
from history.access.reasons import readable_without_reason
from history.http import HtmxRequest, user_page
from history.models import AuditEvent, Session
from history.pages.browse import filters
from history.pages.browse.filters import BrowseQuery
from history.pages.charts import headlines
from history.record.listing import ListCursor, ids_titled, list_sessions
from history.search import Hit, newest_hits, search
from history.search.finding import as_uuid

PAGE = 30
HITS = 20
TITLES = 5
TITLES_AMONG = 1_000
# What a row shows.
ROW_COLUMNS = (
    *("title", "source", "client", "parent_id", "hidden_at", "hold", "archived_at", "last_activity_at", "created_at"),
    *("model", "agent", "message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens", "cost"),
    *("owner", "api_key"),
)


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
    page = list_sessions(
        _listed(viewer, query), before=ListCursor.read_or_none(query.before), limit=PAGE, only=ROW_COLUMNS
    )
    return BrowseResults(sessions=tuple(page.sessions), next_before=str(page.next_before or ""))


def count_spread(viewer: Viewer, query: BrowseQuery) -> filters.Spread:
    if not query.is_search:
        return filters.spread_of_sessions(_listed(viewer, query))
    counts, of_hits, is_all = newest_hits(viewer, query.words, filters=query.filters, among=filters.AMONG)
    sessions = list(dict.fromkeys(of_hits))
    counts["tool"] = filters.count_tools([as_uuid(pk) for pk in sessions[: filters.TOOL_SESSIONS]])
    return filters.Spread(counts=counts, number=len(of_hits), sessions=len(sessions), is_all=is_all)


def count_results(viewer: Viewer, query: BrowseQuery) -> filters.Spread:
    """Like `count_spread`, but of sessions only their number."""
    if query.is_search:
        return count_spread(viewer, query)
    count = _listed(viewer, query).order_by()[: filters.AMONG + 1].count()
    return filters.Spread(
        counts={}, number=min(count, filters.AMONG), sessions=min(count, filters.AMONG), is_all=count <= filters.AMONG
    )


def _conversations(viewer: Viewer, query: BrowseQuery) -> QuerySet[Session]:
    """Sessions within the filters. Notebooks have a page of their own."""
    return query.filters.apply(sessions_for(viewer, Purpose.LIST).exclude(source=Session.Source.NOTEBOOK))


def _listed(viewer: Viewer, query: BrowseQuery) -> QuerySet[Session]:
    return _conversations(viewer, query).filter(archived_at__isnull=not query.archived)


def _find_messages(viewer: Viewer, query: BrowseQuery) -> BrowseResults:
    page = search(viewer, query.words, filters=query.filters, before=query.message, limit=HITS)
    titled: list[UUID] = []
    # Own sessions and those opened with a reason. Titles have no tool and no status.
    if query.message is None and query.words and not (query.tool or query.status):
        titled = list(islice(ids_titled(_conversations(viewer, query), query.words, among=TITLES_AMONG), TITLES))
    ids = {hit.session_id for hit in page.hits}
    sessions = Session.objects.prefetch_related("owner", "api_key").only(*ROW_COLUMNS).in_bulk({*ids, *titled})
    return BrowseResults(
        titles=tuple(sessions[pk] for pk in titled if pk in sessions and pk not in ids),
        groups=tuple(_groups(viewer, page.hits, sessions)),
        next_before="" if page.next_before is None else str(page.next_before),
    )


def _groups(viewer: Viewer, hits: Sequence[Hit], sessions: Mapping[UUID, Session]) -> Iterable[HitGroup]:
    readable = readable_without_reason(viewer, {hit.session_id for hit in hits})
    for pk in dict.fromkeys(hit.session_id for hit in hits):
        if pk in sessions:
            if pk not in readable:
                sessions[pk].hide_title()
            yield HitGroup(sessions[pk], tuple(hit for hit in hits if hit.session_id == pk), pk in readable)


UNDO = timedelta(seconds=30)
SLOW_NETWORK = timedelta(seconds=5)  # Undo in the last second still works
LAST_EVENTS = 1_000
ARCHIVING_KEY = "archiving"


@user_page
@vary_on_headers("HX-Request")
def history(request: HtmxRequest) -> HttpResponse:
    """The page, or for htmx the parts that have changed. The URL is shown without empty parameters."""
    query = BrowseQuery.parse(request.GET)
    if request.htmx and query.before:
        return render(request, "history/browse/_rows.html", {"browse": read_rows(request.user, query)})
    context: dict[str, object] = {"archiving": latest_archiving(request.session)}
    if request.htmx.trigger == "found":  # the list itself was notified of a change
        counted = {"spread": count_results(request.user, query), "deleted": just_deleted_by(request.user)}
        context["browse"] = read_rows(request.user, query) | counted
        return render(request, "history/browse/_results.html", context)
    template = "history/browse/_answer.html" if request.htmx else "history/browse/page.html"
    context["browse"] = read_page(request.user, query)
    if not request.htmx and not query.is_narrowed and not query.before:
        context["headlines"] = headlines(request.user)
    response = render(request, template, context)
    url = reverse("history:browse") + query.link().removesuffix("?")
    # The search box sends its form again when it loses the focus: the same URL would need two steps back.
    if request.htmx and request.htmx.current_url_abs_path != url:
        push_url(response, url)
    return response


def read_page(viewer: Viewer, query: BrowseQuery) -> dict[str, Any]:
    page = read_rows(viewer, query)
    spread = count_spread(viewer, query)
    by_key = count_spread(viewer, query.without("key")) if query.key else spread
    count, sees_others = partial(count_spread, viewer), page["sees_others"]
    return page | {
        "spread": spread,
        "facets": filters.facets_for(query, spread, count=count, sees_others=sees_others),
        "keys": filters.keys_for(viewer, by_key, query, sees_others=sees_others),
        "ranges": _ranges(query),
        "deleted": just_deleted_by(viewer),
    }


def read_rows(viewer: Viewer, query: BrowseQuery) -> dict[str, Any]:
    results = read_results(viewer, query)
    rights = {
        "sees_others": can_access_others(viewer, Purpose.LIST),
        "reads_others": can_access_others(viewer, Purpose.READ),
        "deletes_others": can_access_others(viewer, Purpose.DELETE),
    }
    return {
        "query": query,
        "results": results,
        "more": query.link(before=results.next_before) if results.next_before else "",
        **rights,
        "viewer_key": (viewer.pk, query.archived, *rights.values()),  # what a row depends on besides its session
    }


def _ranges(query: BrowseQuery) -> list[tuple[str, str, bool]]:
    """Label, link, and whether it is picked."""
    today = timezone.localdate()
    week, month = today - timedelta(days=6), today - timedelta(days=29)
    choices = [(_("any time"), None), (_("today"), today), (_("7 days"), week), (_("30 days"), month)]
    return [
        (label, query.link(since=since, until=None), query.since == since and query.until is None)
        for label, since in choices
    ]


def just_deleted_by(user: Viewer) -> QuerySet[Session]:
    """Sessions that this user deleted in the last seconds, also those of other users."""
    since = timezone.now() - UNDO - SLOW_NETWORK
    recent = Session.objects.deleted().filter(hidden_at__gt=since)
    if not recent.exists():  # nearly always
        return Session.objects.none()
    newest = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    hidden = AuditEvent.objects.filter(seq__gt=newest - LAST_EVENTS, action="hide", actor=user.pk, at__gt=since)
    ids = [pk for pk in hidden.values_list("session", flat=True) if pk]
    return recent.filter(pk__in=ids).order_by("-hidden_at")


def note_archiving(store: MutableMapping[str, Any], ids: Iterable[str], *, archived: bool) -> None:
    """Replace the latest step in the user's session; without ids there is nothing to undo."""
    store[ARCHIVING_KEY] = {"ids": list(ids), "archived": archived, "at": time.time()}


def latest_archiving(store: MutableMapping[str, Any]) -> dict[str, Any] | None:
    """The step that can still be undone: the ids of its sessions, and whether it archived or unarchived them."""
    step: dict[str, Any] = store.get(ARCHIVING_KEY) or {}
    return step if step.get("ids") and time.time() - step["at"] <= UNDO.total_seconds() else None
