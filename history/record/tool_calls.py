"""Tool calls across sessions, a page at a time: session with the newest activity first, in it newest call first.

Calls know their session but not whose it is, so sessions are walked in the order that they have an index for, some at a
time and each time more of them, and the calls of these are read at once. Where a filter leaves so little that even the
last round does not fill the page, the page says where to read on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Greatest, Left, Length

from history.models import Session, ToolCall
from history.record.listing import ListCursor, older_than

FIRST_ROUND, LARGEST_ROUND, ROUNDS = 50, 1_000, 8
SHOWN_CHARS = 2_000
TEXTS = ("arguments", "result", "error")
COLUMNS = ("index", "call_id", "name", "status", "created_at", "started_at", "duration", "answered_by")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """The last call of a page, with its session's place in the list; call 0: nothing of that session is left."""

    at: datetime
    session: UUID
    call: int

    def __str__(self) -> str:
        return f"{(self.at - _EPOCH) // timedelta(microseconds=1)}.{self.session.hex}.{self.call}"

    @classmethod
    def read(cls, text: str) -> CallPlace:
        at, session, call = text.split(".")
        return cls(_EPOCH + timedelta(microseconds=int(at)), UUID(session), int(call))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilters:
    """None: no such filter."""

    tool: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> Q:
        asked = {
            "name": self.tool,
            "status": self.status,
            "created_at__gte": self.since,
            "created_at__lt": self.until,
        }
        return Q(**{name: value for name, value in asked.items() if value is not None})


@dataclass(frozen=True, slots=True)
class CallPage:
    calls: list[ToolCall]
    next_after: CallPlace | None


def list_calls(
    sessions: QuerySet[Session],
    *,
    filters: CallFilters = CallFilters(),  # noqa: B008 - frozen
    after: CallPlace | None = None,
    limit: int = 50,
) -> CallPage:
    """One page of the calls in `sessions` (what the viewer may see). Texts are there in their first part only."""
    calls: list[ToolCall] = []
    read_on: CallPlace | None = None
    for ids, last in _rounds(sessions, after):
        read_on = last
        found = _of_sessions(ids, after).filter(filters.conditions())
        calls += found[: limit + 1 - len(calls)]
        if len(calls) > limit:
            return CallPage(calls[:limit], _place_of(calls[limit - 1]))
    return CallPage(calls, read_on)


def _place_of(call: ToolCall) -> CallPlace:
    return CallPlace(call.session.last_activity_at, call.session_id, call.pk)


def _rounds(sessions: QuerySet[Session], after: CallPlace | None) -> Iterator[tuple[list[UUID], CallPlace | None]]:
    """Ids of sessions, and where to read on after them. The one that a page ended in comes first."""
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
