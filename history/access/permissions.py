"""Who may do what with which sessions: one table, asked by pages, admin, REST, sockets, tools and the command line.

A purpose is what somebody wants with a session. One's own may be listed, read, continued, exported and deleted. Staff
have other people's by permissions, one for each purpose, and each of them needs `view_session` too; nobody continues
what is not theirs. A key needs a scope for each purpose, and reaches what was recorded under it, everything of its
owner (`owner_wide`), or everything (`admin`, as long as its owner is staff).

What is hidden or expired is served to nobody, but for one case: those who may hold see what is hidden and under hold.

Reading somebody else's texts needs a reason besides: `history.access.reasons`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import connection
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from history.access.key_cache import has_scope
from history.models import ApiKey, Session, SessionQuerySet

Viewer = AbstractBaseUser | AnonymousUser | ApiKey
M = TypeVar("M", bound=Model)


class Purpose(StrEnum):
    LIST = "list"  # times, counters, who and which model: never a text, and titles only of what is theirs or open
    READ = "read"
    WRITE = "write"  # continue, rename, pin, archive, share
    EXPORT = "export"
    DELETE = "delete"
    HOLD = "hold"  # and release; held sessions that their owners have hidden are seen by those who may


# For each purpose: what a key needs, and what staff need for the sessions of others. Nothing: not even staff.
SCOPES = {
    Purpose.LIST: "read",
    Purpose.READ: "read",
    Purpose.WRITE: "write",
    Purpose.EXPORT: "export",
    Purpose.DELETE: "delete",
    Purpose.HOLD: "admin",
}
PERMISSIONS = {
    Purpose.LIST: "view_session",
    Purpose.READ: "read_session",
    Purpose.WRITE: "",
    Purpose.EXPORT: "export_session",
    Purpose.DELETE: "delete_session",
    Purpose.HOLD: "hold_session",
}


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose sessions somebody has for a purpose; both None: everybody's."""

    owner_id: int | None = None
    api_key_id: int | None = None

    def as_q(self, prefix: str = "") -> Q:
        if self.api_key_id is not None:
            return Q((f"{prefix}api_key_id", self.api_key_id))
        return Q() if self.owner_id is None else Q((f"{prefix}owner_id", self.owner_id))

    def covers(self, session: Session) -> bool:
        if self.api_key_id is not None:
            return session.api_key_id == self.api_key_id
        return self.owner_id is None or session.owner_id == self.owner_id


def reach_of(viewer: Viewer, purpose: Purpose) -> Reach | None:
    """None: nobody's. Which of them are served just now is for `sessions_for` to say."""
    if isinstance(viewer, ApiKey):
        return _reach_of_key(viewer, purpose)
    if not viewer.is_authenticated:
        return None
    if can_access_others(viewer, purpose):
        return Reach()
    return None if purpose is Purpose.HOLD else Reach(owner_id=viewer.pk)


def _reach_of_key(key: ApiKey, purpose: Purpose) -> Reach | None:
    if not has_scope(key, SCOPES[purpose]):
        return None
    if has_scope(key, "admin") and purpose is not Purpose.WRITE:
        return Reach()
    return Reach(owner_id=key.owner_id) if can_see_all_of_owner(key) else Reach(api_key_id=key.pk)


def can_see_all_of_owner(key: ApiKey) -> bool:
    """Or only what was recorded under it."""
    return key.owner_wide or has_scope(key, "admin")


def can_access_others(viewer: Viewer, purpose: Purpose) -> bool:
    """Whether they have this right over everybody's sessions."""
    if isinstance(viewer, ApiKey):
        return reach_of(viewer, purpose) == Reach()
    needed = PERMISSIONS[purpose]
    return bool(needed) and _has(viewer, "view_session") and _has(viewer, needed)


def sessions_for(viewer: Viewer, purpose: Purpose) -> SessionQuerySet:
    """The rule behind every page, socket, search and export: what somebody may not list is not there at all."""
    reach = reach_of(viewer, purpose)
    if reach is None:
        return Session.objects.none()
    rows = visible_sessions(reach, sees_held=_sees_held(viewer, purpose), moment=timezone.now())
    return rows if reach != Reach() or purpose is Purpose.EXPORT else rows.with_titles(_title_rule(viewer))


def _title_rule(viewer: Viewer) -> Any:
    """Whose titles they see among other people's sessions. It asks for rights itself, so it is imported late."""
    from history.access.titles import TitleRule

    return TitleRule(viewer)


def rows_for(viewer: Viewer, purpose: Purpose, rows: QuerySet[M]) -> QuerySet[M]:
    """Rows of another table (messages, calls, exchanges), those of sessions that are there for this purpose.

    By a join: so a list of the newest rows stops when it has a page of them.
    """
    reach = reach_of(viewer, purpose)
    if reach is None:
        return rows.none()
    sees_held = _sees_held(viewer, purpose)
    return rows.filter(*_rule(reach, sees_held=sees_held, moment=timezone.now(), prefix="session__"))


def find(viewer: Viewer, session_id: UUID | str, purpose: Purpose) -> Session | None:
    """The session, or None: not there, not for them, or no session's name at all."""
    try:
        name = session_id if isinstance(session_id, UUID) else UUID(session_id)
    except ValueError:
        return None
    return sessions_for(viewer, purpose).filter(pk=name).first()


def can_access(viewer: Viewer, purpose: Purpose, session: Session) -> bool:
    """The same rule for a session that is at hand."""
    reach = reach_of(viewer, purpose)
    if reach is None or not reach.covers(session):
        return False
    is_kept = session.hold or session.expires_at is None or session.expires_at > timezone.now()
    is_shown = session.hidden_at is None or (session.hold and _sees_held(viewer, purpose))
    return is_kept and is_shown


def visible_sessions(reach: Reach, *, sees_held: bool, moment: datetime) -> SessionQuerySet:
    return Session.objects.filter(*_rule(reach, sees_held=sees_held, moment=moment))


def _rule(reach: Reach, *, sees_held: bool, moment: datetime, prefix: str = "") -> tuple[Q, Q, Q]:
    """Neither expired, even before the purge has come by, nor hidden; held sessions do not expire."""
    held = Q((f"{prefix}hold", True))
    kept = Q((f"{prefix}expires_at", None)) | Q((f"{prefix}expires_at__gt", moment)) | held
    shown = Q((f"{prefix}hidden_at", None))
    return kept, (shown | held if sees_held else shown), reach.as_q(prefix)


def _sees_held(viewer: Viewer, purpose: Purpose) -> bool:
    """Whether they see what its owner has hidden, as long as it is under hold. No key does."""
    is_person = not isinstance(viewer, ApiKey) and purpose is not Purpose.WRITE
    return is_person and can_access_others(viewer, Purpose.HOLD)


def _has(user: Any, right: str) -> bool:
    return bool(user.is_staff and user.has_perm(f"history.{right}"))


# The rule for SQL written by hand.

# What stands in a compiled rule where a time and an id belong.
_SOME_TIME, _SOMEBODY = datetime(2000, 1, 1, tzinfo=UTC), -1


def sql_for(viewer: Viewer, purpose: Purpose, columns: tuple[str, ...]) -> tuple[str, list[Any]] | None:
    """`sessions_for` as SQL, compiled once per kind of viewer; None: nothing at all."""
    reach = reach_of(viewer, purpose)
    if reach is None:
        return None
    kind = Reach(owner_id=reach.owner_id and _SOMEBODY, api_key_id=reach.api_key_id and _SOMEBODY)
    sql, parameters = _compiled(kind, _sees_held(viewer, purpose), columns, connection.vendor)
    now = {_SOME_TIME: connection.ops.adapt_datetimefield_value(timezone.now())}
    return sql, [now.get(value, reach.owner_id or reach.api_key_id) for value in parameters]


@cache
def _compiled(kind: Reach, sees_held: bool, columns: tuple[str, ...], vendor: str) -> tuple[str, tuple[Any, ...]]:
    rows = visible_sessions(kind, sees_held=sees_held, moment=_SOME_TIME).order_by().values(*columns)
    sql, parameters = rows.query.sql_with_params()
    time = connection.ops.adapt_datetimefield_value(_SOME_TIME)
    marks = tuple(_SOME_TIME if value == time else value for value in parameters)
    if unknown := [value for value in marks if value not in (_SOME_TIME, _SOMEBODY)]:
        raise TypeError(f"the rule has parameters that nobody fills in: {unknown}")
    return sql, marks
