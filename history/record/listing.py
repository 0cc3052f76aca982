"""Pages of sessions and of tool calls, newest activity first, by keyset.

Tool calls have no index by owner. So `list_calls` reads the calls of sessions in rounds of growing size, and may return
a page that is not full with the place to continue.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Greatest, Left, Length

from history.entries import EMPTY
from history.models import Session, SessionQuerySet, ToolCall

LOOKED_THROUGH = 5_000  # so many of the newest titles are compared with what was typed


@dataclass(frozen=True, slots=True)
class ListCursor:
    """The last session of a page, after which the next page begins. Its text is meant for copying."""

    at: datetime
    session: UUID

    def __str__(self) -> str:
        return f"{self.at.isoformat()}_{self.session}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises ValueError for a text that is not a cursor."""
        at, _, session = text.rpartition("_")
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError("a cursor has a time zone")
        try:
            return cls(moment.astimezone(UTC), UUID(session))
        except OverflowError:
            raise ValueError("a cursor must be a valid date") from None

    @classmethod
    def read_or_none(cls, text: str) -> "ListCursor | None":
        """For pages: an invalid cursor means the first page."""
        try:
            return cls.read(text)
        except ValueError:
            return None


class SessionPage(NamedTuple):
    sessions: list[Session]
    next_before: ListCursor | None


def list_sessions(
    sessions: QuerySet[Session],
    *,
    before: ListCursor | None = None,
    limit: int = 50,
    only: Sequence[str] = (),
    related: Sequence[str] = ("owner", "api_key"),
) -> SessionPage:
    """One page of `sessions`, which are those that the viewer may see and has asked for. `only` names the columns.

    `related` is read apart: with few users, SQLite would begin a join with those and sort all sessions.
    """
    found = sessions.order_by("-last_activity_at", "-id")
    if before is not None:
        found = found.filter(older_than(before))
    rows = list(found.only(*only).prefetch_related(*related)[: limit + 1])
    last = rows[limit - 1] if len(rows) > limit else None
    return SessionPage(rows[:limit], ListCursor(last.last_activity_at, last.pk) if last else None)


def find_by_title(sessions: QuerySet[Session], typed: str, *, limit: int, among: int = LOOKED_THROUGH) -> list[Session]:
    ids = list(islice(ids_titled(sessions, typed, among=among), limit))
    found = Session.objects.select_related("owner", "api_key").in_bulk(ids)
    return [found[pk] for pk in ids if pk in found]


def ids_titled(sessions: QuerySet[Session], typed: str, *, among: int) -> Iterator[UUID]:
    """Searches the newest titles, without an index. In Python, because SQLite lowers only ASCII capitals."""
    words = [word for word in re.findall(r'[^\s"*]+', typed.casefold()) if word != "or" and not word.startswith("-")]
    if not words:
        return iter(())
    sessions = sessions.whose_title_is_visible() if isinstance(sessions, SessionQuerySet) else sessions
    # Django takes longer to make the ids UUIDs than to compare the titles.
    newest = sessions.order_by("-last_activity_at", "-id").values_list(Cast("pk", TextField()), "title")
    first, *others = words
    folded = ((pk, title.casefold()) for pk, title in newest[:among])
    return (UUID(pk) for pk, title in folded if first in title and all(word in title for word in others))


def older_than(place: ListCursor) -> Q:
    """The last condition is redundant, but an index can be entered by it."""
    older = Q(last_activity_at__lt=place.at) | Q(last_activity_at=place.at, pk__lt=place.session)
    return older & Q(last_activity_at__lte=place.at)


def sessions_beginning_with(sessions: QuerySet[Session], prefix: str) -> list[Session]:
    """Sessions whose id begins with `prefix`: at most two, enough to know whether it is unique."""
    digits = prefix.replace("-", "").lower()
    if not 0 < len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        return []
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return list(sessions.filter(pk__gte=first, pk__lte=last).select_related("owner", "api_key").order_by("pk")[:2])


FIRST_ROUND, LARGEST_ROUND, ROUNDS = 50, 1_000, 8
SHOWN_CHARS = 2_000
TEXTS = ("arguments", "result", "error")
COLUMNS = ("index", "call_id", "name", "status", "created_at", "started_at", "duration", "answered_by")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """The last call of a page, with its session's place in the list. Call 0: the session is finished."""

    at: datetime
    session: UUID
    call: int

    def __str__(self) -> str:
        return f"{(self.at - _EPOCH) // timedelta(microseconds=1)}.{self.session.hex}.{self.call}"

    @classmethod
    def read(cls, text: str) -> Self:
        at, session, call = text.split(".")
        return cls(_EPOCH + timedelta(microseconds=int(at)), UUID(session), int(call))


class CallPage(NamedTuple):
    calls: list[ToolCall]
    next_after: CallPlace | None


def list_calls(
    sessions: QuerySet[Session], *, filters: Mapping[str, Any] = EMPTY, after: CallPlace | None = None, limit: int = 50
) -> CallPage:
    """One page of calls, with the beginning of each text. `filters` are lookups; a value of None means no filter."""
    conditions = {name: value for name, value in filters.items() if value is not None}
    calls: list[ToolCall] = []
    read_on: CallPlace | None = None
    for ids, read_on in _rounds(sessions, after):  # noqa: B007 - the last one is returned
        calls += _of_sessions(ids, after).filter(**conditions)[: limit + 1 - len(calls)]
        if len(calls) > limit:
            last = calls[limit - 1]
            return CallPage(calls[:limit], CallPlace(last.session.last_activity_at, last.session_id, last.pk))
    return CallPage(calls, read_on)


def _rounds(sessions: QuerySet[Session], after: CallPlace | None) -> Iterator[tuple[list[UUID], CallPlace | None]]:
    """Ids of sessions, and where to continue after them. First the session that the page before ended in."""
    newest = sessions.order_by("-last_activity_at", "-id").values_list("last_activity_at", "pk")
    first = list(sessions.filter(pk=after.session).values_list("pk", flat=True)) if after and after.call else []
    last = ListCursor(after.at, after.session) if after else None
    size = FIRST_ROUND
    for _ in range(ROUNDS):
        met = list((newest if last is None else newest.filter(older_than(last)))[:size])
        last = ListCursor(*met[-1]) if len(met) == size else None
        yield [*first, *(pk for _at, pk in met)], CallPlace(last.at, last.session, 0) if last else None
        if last is None:
            return
        first, size = [], min(size * 2, LARGEST_ROUND)


def _of_sessions(ids: list[UUID], after: CallPlace | None) -> QuerySet[ToolCall]:
    calls = ToolCall.objects.filter(session__in=ids)
    if after is not None:
        calls = calls.exclude(session=after.session, pk__gte=after.call)
    first: dict[str, Any] = {f"first_{name}": Left(name, SHOWN_CHARS) for name in TEXTS}
    return (
        calls.annotate(**first, longest=Greatest(*map(Length, TEXTS)))
        .select_related("message", "session")
        .only(*COLUMNS, "message__seq", "session__last_activity_at")
        .order_by("-session__last_activity_at", "-session_id", "-pk")
    )
