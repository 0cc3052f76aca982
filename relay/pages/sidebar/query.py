"""Query parameters of the sidebar, and the state that its HTML carries.

The list carries its state as `hx-vals`: each request from inside it names the open session, the search words and
whether the archive is shown, and gets the same list back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

from django.http import QueryDict

from history.record.listing import ListCursor
from history.text import whole_number
from relay.pages.sidebar.sessions import SidebarPage, SidebarResults, read_sidebar_page, search_sidebar


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarQuery:
    words: str = ""
    archived: bool = False
    current: UUID | None = None
    before: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> SidebarQuery:
        """Parse a request for the list, or from inside it."""
        return cls(
            words=words_of(given),
            archived=given.get("archived") == "1",
            current=parse_id(given.get("current", "")),
            before=given.get("before", ""),
        )

    @property
    def as_json(self) -> str:
        return json.dumps(self._state())

    def link(self, **others: str) -> str:
        """URL query of the same list with other parameters."""
        return "?" + urlencode({name: value for name, value in (self._state() | others).items() if value})

    @property
    def chats(self) -> str:
        return self.link(q="", archived="")

    @property
    def archive(self) -> str:
        return self.link(q="", archived="1")

    def _state(self) -> dict[str, str]:
        return {"q": self.words, "archived": "1" if self.archived else "", "current": str(self.current or "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidebar:
    """A page of the list, or search results."""

    asked: SidebarQuery
    page: SidebarPage | None = None
    found: SidebarResults | None = None

    @property
    def more(self) -> str:
        part = self.page or self.found
        return self.asked.link(before=str(part.next_before)) if part and part.next_before is not None else ""


def load_sidebar(person: Any, asked: SidebarQuery) -> Sidebar:
    if asked.words:
        before = whole_number(asked.before)
        return Sidebar(asked=asked, found=search_sidebar(person, asked.words, before=before, current=asked.current))
    page = read_sidebar_page(person, archived=asked.archived, before=_cursor(asked.before), current=asked.current)
    return Sidebar(asked=asked, page=page)


def address_with(address: str, *, words: str) -> str:
    """URL of a page with other search words: only the path, never another host."""
    parts = urlsplit(address)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "q"]
    query = urlencode([*kept, ("q", words)] if words else kept)
    return "/" + parts.path.lstrip("/") + (f"?{query}" if query else "")


def words_of(given: QueryDict) -> str:
    return given.get("q", "").replace("\0", " ").strip()


def parse_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _cursor(text: str) -> ListCursor | None:
    """An invalid cursor returns None: the first page."""
    try:
        return ListCursor.read(text)
    except ValueError:
        return None
