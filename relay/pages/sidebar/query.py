"""What part of the rail a request asks for, and how the answer remembers it.

The list carries its own state as `hx-vals`: whatever is pressed inside it tells the server which session is open, what
was searched for and whether the archive is shown, and gets the same list back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

from django.http import HttpRequest, QueryDict

from history.record.listing import ListCursor
from relay.pages.sidebar.sessions import RailPage, SidebarResults, find_in_rail, read_rail


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarQuery:
    words: str = ""
    archived: bool = False
    current: UUID | None = None
    before: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> SidebarQuery:
        """Of a request for the list, or from inside it."""
        return cls(
            words=words_of(given),
            archived=given.get("archived") == "1",
            current=_session(given.get("current", "")),
            before=given.get("before", ""),
        )

    @classmethod
    def of_page(cls, request: HttpRequest, *, current: UUID | None) -> SidebarQuery:
        """Of a page with the rail beside it: `before` there is the transcript's."""
        return cls(words=words_of(request.GET), current=current)

    @property
    def as_json(self) -> str:
        return json.dumps(self._state())

    def link(self, **others: str) -> str:
        """The query of the same list, of another part of it."""
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
class Rail:
    """What the templates show: a page of the list, or what was found."""

    asked: SidebarQuery
    page: RailPage | None = None
    found: SidebarResults | None = None

    @property
    def more(self) -> str:
        """The query of the next page."""
        part = self.page or self.found
        return self.asked.link(before=str(part.next_before)) if part and part.next_before is not None else ""


def rail_of(person: Any, asked: SidebarQuery) -> Rail:
    if asked.words:
        before = (
            int(asked.before) if asked.before.isascii() and asked.before.isdigit() and len(asked.before) < 19 else None
        )
        return Rail(asked=asked, found=find_in_rail(person, asked.words, before=before, current=asked.current))
    page = read_rail(person, archived=asked.archived, before=_cursor(asked.before), current=asked.current)
    return Rail(asked=asked, page=page)


def address_with(address: str, *, words: str) -> str:
    """The address of a page as it is to be shown after a search: only its own path, never another host."""
    parts = urlsplit(address)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "q"]
    query = urlencode([*kept, ("q", words)] if words else kept)
    return "/" + parts.path.lstrip("/") + (f"?{query}" if query else "")


def words_of(given: QueryDict) -> str:
    return given.get("q", "").replace("\0", " ").strip()


def _session(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _cursor(text: str) -> ListCursor | None:
    """What no list has given out asks for the beginning."""
    try:
        return ListCursor.read(text)
    except ValueError:
        return None
