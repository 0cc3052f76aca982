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


def load_sidebar(person: Any, asked: SidebarQuery) -> dict[str, Any]:
    """A page of the list, or search results (`found`)."""
    part: SidebarPage | SidebarResults
    if asked.words:
        part = search_sidebar(person, asked.words, before=whole_number(asked.before), current=asked.current)
    else:
        before = ListCursor.read_or_none(asked.before)
        part = read_sidebar_page(person, archived=asked.archived, before=before, current=asked.current)
    more = "" if part.next_before is None else asked.link(before=str(part.next_before))
    return {"asked": asked, "found" if asked.words else "page": part, "more": more}


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
