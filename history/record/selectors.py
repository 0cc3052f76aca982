"""The one reader: lists of sessions and pages of entries. `access.permissions` says who may see them."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import NamedTuple

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from history.access.permissions import Purpose, sessions_for
from history.entries import CONVERSATION, ModelOutput, ToolResults
from history.models import ApiKey, AuditEvent, Message, Session
from history.record import paths
from history.record.loading import MAX_PAGE as MAX_PAGE
from history.record.loading import entries_of as entries_of
from history.record.loading import ledger_of as ledger_of
from history.record.loading import nodes_of as nodes_of
from history.record.loading import plan_at as plan_at
from history.record.loading import snapshot as snapshot
from history.record.loading import snapshot_behind as snapshot_behind

PAGE = 20


class Page(NamedTuple):
    """Entries of one path, oldest first. A call and its results are always on the same page."""

    messages: list[Message]
    has_older: bool
    has_newer: bool


def sessions_owned_by(person: AbstractBaseUser | AnonymousUser) -> QuerySet[Session]:
    """The user's own sessions, which they may change. Staff get no others."""
    return sessions_for(person, Purpose.WRITE)


def sessions_deleted_by(person: AbstractBaseUser | AnonymousUser, *, since: datetime) -> QuerySet[Session]:
    """Sessions that their owner deleted after `since`, also by a key, and may restore. Not those that staff deleted."""
    if not person.is_authenticated:
        return Session.objects.none()
    by_owner = Q(actor=person.pk) | Q(actor=None, key__in=ApiKey.objects.filter(owner=person.pk).values("pk"))
    hidden = AuditEvent.objects.filter(by_owner, session=OuterRef("pk"), action="hide", at__gte=OuterRef("hidden_at"))
    deleted = Session.objects.deleted().filter(owner_id=person.pk, hidden_at__gt=since)
    # Sessions that agents opened from a deleted one are restored with it.
    with_parent = Q(parent__state=Session.State.DELETED, parent__hidden_at=F("hidden_at"))
    return deleted.exclude(with_parent).filter(Exists(hidden))


def messages_of(
    session: Session,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = PAGE,
    leaf: int | None = None,
    at_version: int | None = None,
) -> Page:
    """The newest entries of a path, or those next to an entry. `leaf` and `at_version` select another path."""
    if at_version is not None and leaf is None:
        leaf = paths.head_at(session, at_version)
    path = paths.Path(session.pk, leaf=leaf)
    older_than = partial(path.older_than, read=paths.read_messages)
    newer_than = partial(path.newer_than, read=paths.read_messages)
    limit = max(1, min(limit, MAX_PAGE))
    if after is not None:
        rows = newer_than(after, limit + 1)
        rows, has_newer = rows[:limit], len(rows) > limit
        has_older = bool(older_than(rows[0].seq if rows else after + 1, 1))
    else:
        rows = older_than(before, limit + 1)[::-1]
        has_older, rows = len(rows) > limit, rows[-limit:]
        has_newer = before is not None and bool(newer_than(before - 1, 1))
    if rows and has_newer:  # the results of the last call, if they are on the next page
        last = _said(reversed(rows)) or _said(_up_to_said(older_than, rows[0].seq))
        newer = _up_to_said(newer_than, rows[-1].seq) if last and last.kind == ModelOutput.kind else []
        if newer and newer[-1].kind == ToolResults.kind:
            rows, has_newer = [*rows, *newer], bool(newer_than(newer[-1].seq, 1))
    if rows and has_older:  # the call of the first results, if it is on the page before
        first = _said(rows)
        older = _up_to_said(older_than, rows[0].seq) if first and first.kind == ToolResults.kind else []
        if older and older[-1].kind == ModelOutput.kind:
            rows, has_older = [*reversed(older), *rows], bool(older_than(older[-1].seq, 1))
    return Page(rows, has_older, has_newer)


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
