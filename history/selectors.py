"""The one reader: what a viewer may see, and pages of it. `reading` and `snapshots` do their part behind this door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import connection
from django.db.models import Q, QuerySet
from django.utils import timezone

from history import paths
from history.entries import CONVERSATION, ModelOutput, ToolResults
from history.keyring import holds
from history.models import IN_THE_MAKING, ApiKey, Message, Session
from history.reading import MAX_PAGE, entries_of, ledger_of, nodes_of
from history.snapshots import snapshot

__all__ = [
    "MAX_PAGE",
    "Page",
    "Reach",
    "Viewer",
    "entries_of",
    "find_session",
    "ledger_of",
    "messages_of",
    "nodes_of",
    "reach_of",
    "sessions_deleted_by",
    "sessions_of_workspace",
    "sessions_owned_by",
    "sessions_visible_to",
    "snapshot",
    "visible_sql",
]

Viewer = AbstractBaseUser | AnonymousUser | ApiKey

PAGE = 20


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of one path, oldest first. A call and its results are always on the same page."""

    messages: list[Message]
    has_older: bool
    has_newer: bool


# What a viewer may see.


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose sessions somebody can see at all; both None: everybody's."""

    owner_id: int | None = None
    api_key_id: int | None = None

    def as_q(self) -> Q:
        if self.api_key_id is not None:
            return Q(api_key_id=self.api_key_id)
        return Q() if self.owner_id is None else Q(owner_id=self.owner_id)


def reach_of(viewer: Viewer) -> Reach | None:
    """None: nobody's. Which of them are served just now is for `sessions_visible_to` to say."""
    if isinstance(viewer, ApiKey):
        if holds(viewer, "admin"):
            return Reach()
        return Reach(owner_id=viewer.owner_id) if viewer.owner_wide else Reach(api_key_id=viewer.pk)
    if not viewer.is_authenticated:
        return None
    return Reach() if _may(viewer, "view_session") else Reach(owner_id=viewer.pk)


def sessions_visible_to(viewer: Viewer) -> QuerySet[Session]:
    """The rule behind every page, socket, search and export: a stranger's session is not there at all."""
    reach = reach_of(viewer)
    if reach is None:
        return Session.objects.none()
    return _served(reach, sees_held=_sees_held(viewer), moment=timezone.now())


def sessions_owned_by(person: AbstractBaseUser | AnonymousUser) -> QuerySet[Session]:
    """One's own, as anybody sees their own: what one may change, whatever else one is allowed to read."""
    if not person.is_authenticated:
        return Session.objects.none()
    return _served(Reach(owner_id=person.pk), sees_held=False, moment=timezone.now())


def sessions_deleted_by(person: AbstractBaseUser | AnonymousUser, *, since: datetime) -> QuerySet[Session]:
    """What its owner has hidden after `since`, and may still want back."""
    if not person.is_authenticated:
        return Session.objects.none()
    return Session.objects.filter(owner_id=person.pk, hidden_at__gt=max(since, IN_THE_MAKING))


def visible_sql(viewer: Viewer, columns: tuple[str, ...]) -> tuple[str, list[Any]] | None:
    """The same rule for SQL written by hand, compiled once per kind of viewer; None: nothing at all."""
    reach = reach_of(viewer)
    if reach is None:
        return None
    kind = Reach(owner_id=reach.owner_id and _SOMEBODY, api_key_id=reach.api_key_id and _SOMEBODY)
    sql, parameters = _compiled(kind, _sees_held(viewer), columns, connection.vendor)
    now = {_SOME_TIME: connection.ops.adapt_datetimefield_value(timezone.now())}
    return sql, [now.get(value, reach.owner_id or reach.api_key_id) for value in parameters]


def find_session(viewer: Viewer, session_id: UUID | str) -> Session | None:
    """The session, or None: not there, not theirs, or no session's name at all."""
    try:
        name = session_id if isinstance(session_id, UUID) else UUID(session_id)
    except ValueError:
        return None
    return sessions_visible_to(viewer).filter(pk=name).first()


def sessions_of_workspace(viewer: Viewer, *, agent: str, workspace: str) -> QuerySet[Session]:
    """One agent's history in one workspace: a filter, so the same pair always means the same sessions."""
    return sessions_visible_to(viewer).filter(agent=agent, workspace=workspace)


def _served(reach: Reach, *, sees_held: bool, moment: datetime) -> QuerySet[Session]:
    """Neither expired, even before the purge has come by, nor hidden; held sessions do not expire."""
    kept = Q(expires_at=None) | Q(expires_at__gt=moment) | Q(hold=True)
    shown = Q(hidden_at=None) | Q(hold=True) if sees_held else Q(hidden_at=None)
    return Session.objects.filter(kept, shown, reach.as_q())


# What stands in a compiled rule where a time and an id belong.
_SOME_TIME, _SOMEBODY = datetime(2000, 1, 1, tzinfo=UTC), -1


@cache
def _compiled(kind: Reach, sees_held: bool, columns: tuple[str, ...], vendor: str) -> tuple[str, tuple[Any, ...]]:
    rows = _served(kind, sees_held=sees_held, moment=_SOME_TIME).order_by().values(*columns)
    sql, parameters = rows.query.sql_with_params()
    time = connection.ops.adapt_datetimefield_value(_SOME_TIME)
    marks = tuple(_SOME_TIME if value == time else value for value in parameters)
    if unknown := [value for value in marks if value not in (_SOME_TIME, _SOMEBODY)]:
        raise TypeError(f"the rule has parameters that nobody fills in: {unknown}")
    return sql, marks


def _sees_held(viewer: Viewer) -> bool:
    """Whether they see what its owner has hidden, as long as it is under hold."""
    return not isinstance(viewer, ApiKey) and _may(viewer, "hold_session") and _may(viewer, "view_session")


def _may(user: Any, right: str) -> bool:
    return bool(user.is_staff and user.has_perm(f"history.{right}"))


# Pages.


def messages_of(
    session: Session,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = PAGE,
    leaf: int | None = None,
    at_version: int | None = None,
) -> Page:
    """The newest entries of the path, or those next to an entry in either direction.

    `leaf` looks at another branch, `at_version` at the session as it was; neither moves anything.
    """
    path = _Pages(session, leaf=leaf, at_version=at_version)
    limit = max(1, min(limit, MAX_PAGE))
    if after is not None:
        rows = path.newer_than(after, limit + 1)
        rows, has_newer = rows[:limit], len(rows) > limit
        has_older = bool(path.older_than(rows[0].seq if rows else after + 1, 1))
    else:
        rows = path.older_than(before, limit + 1)[::-1]
        has_older, rows = len(rows) > limit, rows[-limit:]
        has_newer = before is not None and bool(path.newer_than(before - 1, 1))
    if rows and has_newer and (results := _results_after(path, rows)):
        rows, has_newer = [*rows, *results], bool(path.newer_than(results[-1].seq, 1))
    if rows and has_older and (calls := _calls_before(path, rows)):
        rows, has_older = [*calls, *rows], bool(path.older_than(calls[0].seq, 1))
    return Page(rows, has_older, has_newer)


class _Pages:
    """Messages along one path, in both directions."""

    def __init__(self, session: Session, *, leaf: int | None, at_version: int | None) -> None:
        if at_version is not None and leaf is None:
            leaf = paths.head_at(session, at_version)
        self.path = paths.Path(session.pk, leaf=leaf)

    def older_than(self, seq: int | None, limit: int) -> list[Message]:
        return self.path.older_than(seq, limit, paths.read_messages)

    def newer_than(self, seq: int, limit: int) -> list[Message]:
        return self.path.newer_than(seq, limit, paths.read_messages)


def _results_after(path: _Pages, rows: Sequence[Message]) -> list[Message]:
    """The results that answer the last call of a page, where they stand on the next one, and what lies between."""
    last = _said(reversed(rows)) or _said(_up_to_said(path.older_than, rows[0].seq))
    if last is None or last.kind != ModelOutput.kind:
        return []
    newer = _up_to_said(path.newer_than, rows[-1].seq)
    return newer if newer and newer[-1].kind == ToolResults.kind else []


def _calls_before(path: _Pages, rows: Sequence[Message]) -> list[Message]:
    """The call that the first results of a page answer, where it stands on the page before, and what lies between."""
    first = _said(rows)
    if first is None or first.kind != ToolResults.kind:
        return []
    older = _up_to_said(path.older_than, rows[0].seq)[::-1]
    return older if older and older[0].kind == ModelOutput.kind else []


def _up_to_said(read: Callable[[int, int], list[Message]], seq: int) -> list[Message]:
    """The rows next to entry `seq` in one direction, up to the first that is part of the conversation."""
    found: list[Message] = []
    while rows := read(found[-1].seq if found else seq, 4):
        for row in rows:
            found.append(row)
            if row.kind in CONVERSATION:
                return found
    return found


def _said(rows: Iterable[Message]) -> Message | None:
    return next((row for row in rows if row.kind in CONVERSATION), None)
