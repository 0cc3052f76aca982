"""Where one can go from anywhere: pages of the house, sessions, and messages by what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from history.models import Session
from history.search import Hit
from relay.rail import find_in_rail, sessions_in_rail

SESSIONS = 8
HITS = 8
# Address, words, for staff alone. A page that this server does not have is left out.
PLACES = (
    ("home", gettext_lazy("New chat"), False),
    ("relay:rail", gettext_lazy("All sessions"), False),
    ("history:browse", gettext_lazy("History"), False),
    ("history:charts", gettext_lazy("Charts"), False),
    ("accounts:preferences", gettext_lazy("Preferences"), False),
    ("accounts:password", gettext_lazy("Password"), False),
    ("accounts:people", gettext_lazy("People"), True),
    ("relay:providers", gettext_lazy("Providers"), True),
    ("admin:index", gettext_lazy("Admin"), True),
)


@dataclass(frozen=True, slots=True)
class Place:
    address: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    words: str
    places: tuple[Place, ...]
    sessions: tuple[Session, ...]
    hits: tuple[Hit, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.places or self.sessions or self.hits)

    @property
    def heading(self) -> str:
        return _("Sessions") if self.words else _("Recent sessions")


def palette_for(person: Any, words: str) -> Palette:
    """Everything with these words; without any: the newest sessions and all the places."""
    places = tuple(place for place in _places(person) if words.casefold() in place.words.casefold())
    if not words:
        newest = sessions_in_rail(person).filter(archived_at=None)[:SESSIONS]
        return Palette(words=words, places=places, sessions=tuple(newest))
    found = find_in_rail(person, words)
    sessions = tuple(row.session for row in found.titles[:SESSIONS])
    return Palette(words=words, places=places, sessions=sessions, hits=found.hits[:HITS])


def _places(person: Any) -> list[Place]:
    found = []
    for name, words, is_for_staff in PLACES:
        if is_for_staff and not person.is_staff:
            continue
        try:
            found.append(Place(reverse(name), str(words)))
        except NoReverseMatch:
            continue
    return found
