"""Permissions on sessions: one table for pages, admin, REST, sockets, tools and the command line.

docs/permissions.md has the rules. Deleted and expired sessions are not shown, except deleted ones under hold to users
who may hold. The texts of other users' sessions also need a reason: `history.access.reasons`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AbstractUser, AnonymousUser
from django.db import connection
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from history.access.key_cache import has_scope
from history.db.prepared import prepared
from history.models import ApiKey, Session, SessionQuerySet

Viewer = AbstractBaseUser | AnonymousUser | ApiKey
M = TypeVar("M", bound=Model)


class Purpose(StrEnum):
    LIST = "list"  # times, counters, owner and model; titles only of own or opened sessions
    READ = "read"
    WRITE = "write"  # continue, rename, pin, archive, share
    EXPORT = "export"
    DELETE = "delete"
    HOLD = "hold"  # and release


# The scope that a key needs, and the permission that staff need for sessions of other users (empty: never).
NEEDED = {
    Purpose.LIST: ("read", "view_session"),
    Purpose.READ: ("read", "read_session"),
    Purpose.WRITE: ("write", ""),
    Purpose.EXPORT: ("export", "export_session"),
    Purpose.DELETE: ("delete", "delete_session"),
    Purpose.HOLD: ("admin", "hold_session"),
}


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose sessions a viewer reaches for a purpose. Both None means all users."""

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
    """None means no session at all. `sessions_for` says which of them are shown now."""
    if isinstance(viewer, ApiKey):
        if not has_scope(viewer, NEEDED[purpose][0]):
            return None
        if has_scope(viewer, "admin") and purpose is not Purpose.WRITE:
            return Reach()
        return Reach(owner_id=viewer.owner_id) if can_see_all_of_owner(viewer) else Reach(api_key_id=viewer.pk)
    if not viewer.is_authenticated:
        return None
    if can_access_others(viewer, purpose):
        return Reach()
    return None if purpose is Purpose.HOLD else Reach(owner_id=viewer.pk)


def can_see_all_of_owner(key: ApiKey) -> bool:
    return key.owner_wide or has_scope(key, "admin")


def can_access_others(viewer: Viewer, purpose: Purpose) -> bool:
    if isinstance(viewer, ApiKey):
        return reach_of(viewer, purpose) == Reach()
    user, needed = cast(AbstractUser, viewer), NEEDED[purpose][1]
    return bool(needed) and user.is_staff and user.has_perms(("history.view_session", f"history.{needed}"))


def sessions_for(viewer: Viewer, purpose: Purpose) -> SessionQuerySet:
    """The sessions of a viewer for a purpose: the rule behind every page, socket, search and export."""
    reach = reach_of(viewer, purpose)
    if reach is None:
        return Session.objects.none()
    rows = visible_sessions(reach, sees_held=_sees_held(viewer, purpose), moment=timezone.now())
    if reach != Reach() or purpose is Purpose.EXPORT:
        return rows
    from history.access.reasons import TitleRule  # late, because it uses this module

    return rows.with_titles(TitleRule(viewer))


def rows_for(viewer: Viewer, purpose: Purpose, rows: QuerySet[M]) -> QuerySet[M]:
    """Rows with a session in reach. By a join, so that a list of the newest rows stops when it has a page of them."""
    reach = reach_of(viewer, purpose)
    if reach is None:
        return rows.none()
    sees_held = _sees_held(viewer, purpose)
    return rows.filter(*_rule(reach, sees_held=sees_held, moment=timezone.now(), prefix="session__"))


def find(viewer: Viewer, session_id: UUID | str, purpose: Purpose) -> Session | None:
    """The session, or None: not there, not theirs, or not an id."""
    try:
        name = session_id if isinstance(session_id, UUID) else UUID(session_id)
    except ValueError:
        return None
    reach = reach_of(viewer, purpose)
    if reach is not None and reach.owner_id is not None and not _sees_held(viewer, purpose):
        return _own_session.first(name, reach.owner_id, timezone.now())
    return sessions_for(viewer, purpose).filter(pk=name).first()


@prepared
def _own_session(session_id: UUID, owner_id: int, moment: datetime) -> QuerySet[Session]:
    """`sessions_for` a user who reaches no sessions of others."""
    return visible_sessions(Reach(owner_id=owner_id), sees_held=False, moment=moment).filter(pk=session_id)


def can_access(viewer: Viewer, purpose: Purpose, session: Session) -> bool:
    """The rule of `sessions_for` for a loaded session."""
    reach = reach_of(viewer, purpose)
    if reach is None or not reach.covers(session):
        return False
    is_kept = session.hold or session.expires_at is None or session.expires_at > timezone.now()
    is_shown = session.state == Session.State.OPEN or (session.hold and _sees_held(viewer, purpose))
    return is_kept and is_shown


def visible_sessions(reach: Reach, *, sees_held: bool, moment: datetime) -> SessionQuerySet:
    return Session.objects.filter(*_rule(reach, sees_held=sees_held, moment=moment))


def _rule(reach: Reach, *, sees_held: bool, moment: datetime, prefix: str = "") -> tuple[Q, Q, Q]:
    """Not expired, even before a purge, and not deleted. Held sessions do not expire."""
    held = Q((f"{prefix}hold", True))
    kept = Q((f"{prefix}expires_at", None)) | Q((f"{prefix}expires_at__gt", moment)) | held
    shown = Q((f"{prefix}state", Session.State.OPEN))
    if prefix:  # calls without a session have no state
        shown |= Q((prefix.removesuffix("__"), None))
    return kept, (shown | held if sees_held else shown), reach.as_q(prefix)


def _sees_held(viewer: Viewer, purpose: Purpose) -> bool:
    is_key = isinstance(viewer, ApiKey)
    return not is_key and purpose is not Purpose.WRITE and can_access_others(viewer, Purpose.HOLD)


_SOME_TIME, _SOME_ID = datetime(2000, 1, 1, tzinfo=UTC), -1  # placeholders of the time and the id in a compiled rule


def sql_for(viewer: Viewer, purpose: Purpose, columns: tuple[str, ...]) -> tuple[str, list[Any]] | None:
    """`sessions_for` for SQL written by hand, compiled once per kind of viewer. None means no session at all."""
    reach = reach_of(viewer, purpose)
    if reach is None:
        return None
    kind = Reach(owner_id=reach.owner_id and _SOME_ID, api_key_id=reach.api_key_id and _SOME_ID)
    sql, parameters = _compiled(kind, _sees_held(viewer, purpose), columns, connection.vendor)
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    given = {_SOME_TIME: now, _SOME_ID: reach.owner_id or reach.api_key_id}
    return sql, [given.get(value, value) for value in parameters]


@cache
def _compiled(kind: Reach, sees_held: bool, columns: tuple[str, ...], vendor: str) -> tuple[str, tuple[Any, ...]]:
    rows = visible_sessions(kind, sees_held=sees_held, moment=_SOME_TIME).order_by().values(*columns)
    sql, parameters = rows.query.sql_with_params()
    time = connection.ops.adapt_datetimefield_value(_SOME_TIME)
    marks = tuple(_SOME_TIME if value == time else value for value in parameters if value != Session.State.OPEN)
    # A bound state makes SQLite prepare the statement anew each time, because of the partial indexes: 0.3 ms a search.
    sql = sql.replace('"state" = %s', f"\"state\" = '{Session.State.OPEN}'")
    if unknown := [value for value in marks if value not in (_SOME_TIME, _SOME_ID)]:
        raise TypeError(f"the rule has unknown parameters: {unknown}")
    return sql, marks
