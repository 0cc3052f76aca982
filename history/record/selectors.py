"""The one reader: lists of sessions and pages of entries. `access.permissions` says who may see them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from history.access.permissions import Purpose, Viewer, sessions_for
from history.entries import CONVERSATION, ModelOutput, ToolResults
from history.models import ApiKey, AuditEvent, Message, Session
from history.record import paths
from history.record.loading import MAX_PAGE, entries_of, ledger_of, nodes_of
from history.record.snapshots import plan_at, snapshot, snapshot_behind

__all__ = [
    "MAX_PAGE",
    "Page",
    "Viewer",
    "entries_of",
    "ledger_of",
    "messages_of",
    "nodes_of",
    "plan_at",
    "sessions_deleted_by",
    "sessions_of_workspace",
    "sessions_owned_by",
    "snapshot",
    "snapshot_behind",
]

PAGE = 20


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of one path, oldest first. A call and its results are always on the same page."""

    messages: list[Message]
    has_older: bool
    has_newer: bool


# Lists.


def sessions_owned_by(person: AbstractBaseUser | AnonymousUser) -> QuerySet[Session]:
    """The user's own sessions, which they may change. Staff get no others."""
    return sessions_for(person, Purpose.WRITE)


def sessions_deleted_by(person: AbstractBaseUser | AnonymousUser, *, since: datetime) -> QuerySet[Session]:
    """Sessions that their owner deleted after `since` and may restore, also by a key.

    Deletions by staff cannot be undone by the owner. Sessions that agents opened from a deleted one are restored with
    it.
    """
    if not person.is_authenticated:
        return Session.objects.none()
    by_owner = Q(actor=person.pk) | Q(actor=None, key__in=ApiKey.objects.filter(owner=person.pk).values("pk"))
    hidden = AuditEvent.objects.filter(by_owner, session=OuterRef("pk"), action="hide", at__gte=OuterRef("hidden_at"))
    deleted = Session.objects.deleted().filter(owner_id=person.pk, hidden_at__gt=since)
    with_parent = Q(parent__state=Session.State.DELETED, parent__hidden_at=F("hidden_at"))
    return deleted.exclude(with_parent).filter(Exists(hidden))


def sessions_of_workspace(viewer: Viewer, *, agent: str, workspace: str) -> QuerySet[Session]:
    """One agent's sessions in one workspace."""
    return sessions_for(viewer, Purpose.LIST).filter(agent=agent, workspace=workspace)


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

    `leaf` selects another branch, `at_version` an earlier state of the session.
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
    """The results of the last call of a page if they are on the next one, and the entries between."""
    last = _said(reversed(rows)) or _said(_up_to_said(path.older_than, rows[0].seq))
    if last is None or last.kind != ModelOutput.kind:
        return []
    newer = _up_to_said(path.newer_than, rows[-1].seq)
    return newer if newer and newer[-1].kind == ToolResults.kind else []


def _calls_before(path: _Pages, rows: Sequence[Message]) -> list[Message]:
    """The call of the first results of a page if it is on the page before, and the entries between."""
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
