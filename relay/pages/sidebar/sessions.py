"""Session list of the sidebar: sessions of a user by last activity, grouped by day, their search, and its parameters.

Only the user's own sessions are listed; staff find those of other users under /history/. Sessions of subagents and
notebooks are not listed. The list carries its state as `hx-vals`: each request from inside it names the open session,
the search words and whether the archive is shown, and gets the same list back.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from history.models import Session
from history.pages.browse.views import SLOW_NETWORK, UNDO
from history.record.listing import ListCursor, find_by_title, list_sessions
from history.record.selectors import sessions_deleted_by, sessions_owned_by
from history.search import Hit, SessionQuery, search
from history.text import whole_number
from relay.models import Run

PAGE = 30
MOST_PINNED = 100
TITLES = 8
HITS = 20
# The columns that a row shows.
SHOWN = ("title", "source", "client", "pinned_at", "archived_at", "hidden_at", "last_activity_at")
SOURCES = (Session.Source.CHAT, Session.Source.RELAY, Session.Source.IMPORT)


class Row(NamedTuple):
    session: Session
    is_answering: bool
    is_current: bool


class Day(NamedTuple):
    """Rows under one heading. Without a label they continue the last day of the page before."""

    label: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarPage:
    days: tuple[Day, ...]
    deleted: tuple[Session, ...] = ()
    put_away: tuple[Session, ...] = ()  # archived within the last 30 seconds: the list offers Undo
    next_before: ListCursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarResults:
    """Sessions found by title, and messages found by text."""

    titles: tuple[Row, ...]
    hits: tuple[Hit, ...]
    next_before: int | None

    @property
    def number(self) -> int:
        return len(self.titles) + len(self.hits)


def sidebar_sessions(person: Any) -> QuerySet[Session]:
    return sessions_owned_by(person).filter(parent=None, source__in=SOURCES)


def read_sidebar_page(
    person: Any, *, archived: bool = False, before: ListCursor | None = None, current: UUID | None = None
) -> SidebarPage:
    """A page of the list. The first one starts with sessions just deleted and pinned ones."""
    mine = sidebar_sessions(person)
    kept = mine.filter(archived_at=None, pinned_at=None) if not archived else mine.filter(archived_at__isnull=False)
    page = list_sessions(kept, before=before, limit=PAGE, only=SHOWN, related=())
    at_top = mine.filter(archived_at=None, pinned_at__isnull=False).only(*SHOWN)
    pinned = [] if archived or before else list(at_top[:MOST_PINNED])
    rows = rows_of([*pinned, *page.sessions], current=current)
    days = [Day(_("Pinned"), rows[: len(pinned)])] if pinned else []
    days += _by_day(rows[len(pinned) :], after=before)
    return SidebarPage(
        days=tuple(days),
        deleted=tuple(just_deleted(person)) if before is None and _has_just_deleted(person) else (),
        put_away=tuple(just_archived(person)) if before is None and not archived else (),
        next_before=page.next_before,
    )


def just_deleted(person: Any) -> QuerySet[Session]:
    """Sessions for which the list offers Undo."""
    return sessions_deleted_by(person, since=timezone.now() - UNDO - SLOW_NETWORK).order_by("-hidden_at")


def _has_just_deleted(person: Any) -> bool:
    """A cheap query instead of the whole rule: nearly always the answer is no."""
    since = timezone.now() - UNDO - SLOW_NETWORK
    return Session.objects.deleted().filter(owner_id=person.pk, hidden_at__gt=since).exists()


def in_trash(person: Any) -> QuerySet[Session]:
    """Sessions that the person deleted and can restore until the trash is emptied, newest first."""
    since = timezone.now() - timedelta(hours=settings.PARLEY_TRASH_HOURS)
    return sessions_deleted_by(person, since=since).order_by("-hidden_at")


def just_archived(person: Any) -> QuerySet[Session]:
    return sidebar_sessions(person).filter(archived_at__gt=timezone.now() - UNDO).order_by("-archived_at")


def rows_of(sessions: Sequence[Session], *, current: UUID | None = None) -> tuple[Row, ...]:
    busy = Run.objects.sessions_running(session.pk for session in sessions)
    return tuple(Row(session, session.pk in busy, session.pk == current) for session in sessions)


def _by_day(rows: Iterable[Row], *, after: ListCursor | None) -> Iterator[Day]:
    """Group by day. The first heading is left out if the page before ended with it."""
    now, zone = timezone.now(), timezone.get_current_timezone()
    labels: dict[date, str] = {}

    def label_of(row: Row) -> str:
        moment = row.session.last_activity_at
        day = moment.astimezone(zone).date()
        if day not in labels:
            labels[day] = day_label(moment, now=now)
        return labels[day]

    last_label = day_label(after.at, now=now) if after else ""
    for label, group in groupby(rows, key=label_of):
        yield Day("" if label == last_label else label, tuple(group))


def day_label(moment: datetime, *, now: datetime) -> str:
    """Today, yesterday, a weekday or a month, in the time zone of the reader."""
    day = timezone.localtime(moment).date()
    days = (timezone.localtime(now).date() - day).days
    if days <= 0:
        return _("Today")
    if days == 1:
        return _("Yesterday")
    return date_format(day, "l") if days < 7 else date_format(day, "YEAR_MONTH_FORMAT")


def search_sidebar(
    person: Any, typed: str, *, before: int | None = None, current: UUID | None = None, titles_win: bool = False
) -> SidebarResults:
    """Sessions and messages with these words. `titles_win`: a session with both is listed by its title alone."""
    titles = [] if before is not None else find_by_title(sidebar_sessions(person), typed, limit=TITLES)
    filters = SessionQuery(owner=(person.pk,), source=tuple(str(source) for source in SOURCES))
    words = f"{typed}*" if typed[-1:].isalnum() else typed  # the last word may be incomplete
    results = search(person, words, filters=filters, before=before, limit=HITS)
    found = {hit.session_id for hit in results.hits}
    shown = set(sessions_owned_by(person).filter(pk__in=found).values_list("pk", flat=True))
    if titles_win:
        shown -= {session.pk for session in titles}
    hits = [hit for hit in results.hits if hit.session_id in shown]
    by_message = {hit.session_id for hit in hits}
    return SidebarResults(
        titles=rows_of([session for session in titles if session.pk not in by_message], current=current),
        hits=tuple(hits),
        next_before=results.next_before,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarQuery:
    words: str = ""
    archived: bool = False
    current: UUID | None = None
    before: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> "SidebarQuery":
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


def load_sidebar(person: Any, query: SidebarQuery) -> dict[str, Any]:
    """A page of the list, or search results (`found`)."""
    part: SidebarPage | SidebarResults
    if query.words:
        part = search_sidebar(person, query.words, before=whole_number(query.before), current=query.current)
    else:
        before = ListCursor.read_or_none(query.before)
        part = read_sidebar_page(person, archived=query.archived, before=before, current=query.current)
    more = "" if part.next_before is None else query.link(before=str(part.next_before))
    return {"query": query, "found" if query.words else "page": part, "more": more}


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
