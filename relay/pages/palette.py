"""Command palette (Ctrl+K): pages, sessions and messages that a user can go to."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.vary import vary_on_headers

from history.http import HtmxRequest, user_page, wants_fragment
from history.models import Session
from history.search import Hit
from relay.pages.sidebar.query import words_of
from relay.pages.sidebar.sessions import search_sidebar, sidebar_sessions

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


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    address: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    words: str
    places: tuple[PaletteEntry, ...]
    sessions: tuple[Session, ...]
    hits: tuple[Hit, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.places or self.sessions or self.hits)

    @property
    def heading(self) -> str:
        return _("Sessions") if self.words else _("Recent sessions")


def palette_for(person: Any, words: str) -> Palette:
    """Search results, or without words the newest sessions and all pages."""
    places = tuple(place for place in _places(person) if words.casefold() in place.words.casefold())
    if not words:
        newest = sidebar_sessions(person).filter(archived_at=None)[:SESSIONS]
        return Palette(words=words, places=places, sessions=tuple(newest))
    found = search_sidebar(person, words, titles_win=True)
    sessions = tuple(row.session for row in found.titles[:SESSIONS])
    return Palette(words=words, places=places, sessions=sessions, hits=found.hits[:HITS])


def _places(person: Any) -> list[PaletteEntry]:
    found = []
    for name, words, attribute in PLACES:
        if not getattr(person, attribute):
            continue
        try:
            found.append(PaletteEntry(reverse(name), str(words)))
        except NoReverseMatch:
            continue
    return found


@user_page
@vary_on_headers("HX-Request")
def palette(request: HtmxRequest) -> HttpResponse:
    """The list below the text box. Without JavaScript, redirect to the search of the sidebar page."""
    words = words_of(request.GET)
    if not wants_fragment(request):
        return redirect(reverse("relay:sidebar") + (f"?{urlencode({'q': words})}" if words else ""))
    return render(request, "chat/_palette_list.html", {"palette": palette_for(request.user, words)})
