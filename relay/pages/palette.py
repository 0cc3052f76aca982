"""Command palette (Ctrl+K): pages, sessions and messages that a user can go to."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy
from django.views.decorators.vary import vary_on_headers

from history.http import HtmxRequest, user_page, wants_fragment
from relay.pages.sidebar.sessions import search_sidebar, sidebar_sessions, words_of

SESSIONS = 8
HITS = 8

# URL name, label, and the attribute of users who may go there. A page that this server does not have is left out.
PLACES: tuple[tuple[str, Any, str], ...] = (
    ("home", gettext_lazy("New chat"), "is_active"),
    ("relay:sidebar", gettext_lazy("All sessions"), "is_active"),
    ("history:browse", gettext_lazy("History"), "is_active"),
    ("history:charts", gettext_lazy("Charts"), "is_active"),
    ("relay:keys", gettext_lazy("API keys"), "is_active"),
    ("history:imports", gettext_lazy("Import"), "is_active"),
    ("history:export", gettext_lazy("Export"), "is_active"),
    ("relay:notebooks", gettext_lazy("Notebooks"), "is_active"),
    ("history:lint", gettext_lazy("Linter"), "is_active"),
    ("api:docs", gettext_lazy("API documentation"), "is_active"),
    ("help:index", gettext_lazy("Help"), "is_active"),
    ("accounts:preferences", gettext_lazy("Preferences"), "is_active"),
    ("accounts:password", gettext_lazy("Password"), "is_active"),
    ("accounts:people", gettext_lazy("People"), "is_staff"),
    ("relay:providers", gettext_lazy("Providers"), "is_staff"),
    ("relay:mcp_servers", gettext_lazy("MCP servers"), "is_staff"),
    ("admin:index", gettext_lazy("Admin"), "may_use_admin"),
)


def _places(person: Any, words: str) -> Iterator[tuple[str, str]]:
    """URL and label of the pages whose label contains the words."""
    for name, label, attribute in PLACES:
        if getattr(person, attribute) and words.casefold() in str(label).casefold():
            with suppress(NoReverseMatch):
                yield reverse(name), label


@user_page
@vary_on_headers("HX-Request")
def palette(request: HtmxRequest) -> HttpResponse:
    """Search results, or without words the newest sessions and all pages. Without JavaScript, the sidebar's search."""
    words = words_of(request.GET)
    if not wants_fragment(request):
        return redirect(reverse("relay:sidebar") + (f"?{urlencode({'q': words})}" if words else ""))
    context: dict[str, Any] = {"words": words, "places": list(_places(request.user, words))}
    if words:
        found = search_sidebar(request.user, words, titles_win=True)
        context |= {"sessions": [row.session for row in found.titles[:SESSIONS]], "hits": found.hits[:HITS]}
    else:
        context["sessions"] = sidebar_sessions(request.user).filter(archived_at=None)[:SESSIONS]
    return render(request, "chat/_palette_list.html", context)
