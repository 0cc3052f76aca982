"""The browse page /history/: search, narrow, select and export sessions. Every state is a URL."""

import time
from collections.abc import Iterable, MutableMapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import push_url

from history.access.permissions import Purpose, Viewer, can_access_others
from history.http import HtmxRequest, user_page
from history.models import AuditEvent, Session
from history.pages.browse.facets import facets_for, keys_for
from history.pages.browse.query import BrowseQuery
from history.pages.browse.results import count_results, count_spread, read_results
from history.pages.charts.views import headlines

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
        return render(request, "history/browse/_found.html", context)
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
        "facets": facets_for(query, spread, count=count, sees_others=sees_others),
        "keys": keys_for(viewer, by_key, query, sees_others=sees_others),
        "ranges": _ranges(query),
        "deleted": just_deleted_by(viewer),
    }


def read_rows(viewer: Viewer, query: BrowseQuery) -> dict[str, Any]:
    results = read_results(viewer, query)
    return {
        "query": query,
        "results": results,
        "more": query.link(before=results.next_before) if results.next_before else "",
        "sees_others": can_access_others(viewer, Purpose.LIST),
        "reads_others": can_access_others(viewer, Purpose.READ),
        "deletes_others": can_access_others(viewer, Purpose.DELETE),
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
    newest = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    hidden = AuditEvent.objects.filter(seq__gt=newest - LAST_EVENTS, action="hide", actor=user.pk, at__gt=since)
    ids = [pk for pk in hidden.values_list("session", flat=True) if pk]
    return Session.objects.deleted().filter(pk__in=ids, hidden_at__gt=since).order_by("-hidden_at")


def note_archiving(store: MutableMapping[str, Any], ids: Iterable[str], *, archived: bool) -> None:
    """Replace the latest step in the user's session; without ids there is nothing to undo."""
    store[ARCHIVING_KEY] = {"ids": list(ids), "archived": archived, "at": time.time()}


def latest_archiving(store: MutableMapping[str, Any]) -> dict[str, Any] | None:
    """The step that can still be undone: the ids of its sessions, and whether it archived or unarchived them."""
    step: dict[str, Any] = store.get(ARCHIVING_KEY) or {}
    return step if step.get("ids") and time.time() - step["at"] <= UNDO.total_seconds() else None
