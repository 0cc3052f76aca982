"""What the policies of today say is to go, as questions to the database; and stored times brought in line with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, QuerySet

from history.db.transactions import writing
from history.models import COPY_UNFINISHED, ApiKey, Exchange, Session
from history.record.expiry import RetentionScope, scopes
from history.retention.removal import BATCH

LIVES_FOR = timedelta(hours=1)  # a copy, after its last sign of life


def expired(scope: RetentionScope, now: datetime) -> QuerySet[Session]:
    return removable_sessions(scope).filter(scope.policy.expired(now))


def trashed(scope: RetentionScope, now: datetime) -> QuerySet[Session]:
    hidden = removable_sessions(scope).filter(hidden_at__lte=now - timedelta(hours=settings.PARLEY_TRASH_HOURS))
    return hidden.exclude(pk__in=expired(scope, now).values("pk"))


def unfinished(now: datetime) -> QuerySet[Session]:
    """Forks that nobody goes on copying: every batch of a copy is a sign of life."""
    return Session.objects.filter(hidden_at=COPY_UNFINISHED, stored_at__lt=now - LIVES_FOR)


def over_cap(now: datetime) -> Iterator[QuerySet[Session]]:
    """Per key: what lies beyond its newest sessions. Hidden and held ones do not take anybody's place."""
    for key in one_by_one(ApiKey.objects.all()):
        for sources, cap in _caps_of(key):
            mine = Session.objects.not_hidden().filter(api_key=key, source__in=sources, hold=False)
            kept = mine.order_by("-last_activity_at", "-id").values_list("last_activity_at", "pk")
            for moment, pk in kept[cap - 1 : cap]:
                yield mine.filter(Q(last_activity_at__lt=moment) | Q(last_activity_at=moment, pk__lt=pk))


def _caps_of(key: ApiKey) -> Iterator[tuple[list[str], int]]:
    if key.max_sessions:
        yield list(Session.Source.values), key.max_sessions
    elif key.max_sessions is None and settings.CHAT_HISTORY_MAX_SESSIONS:
        yield [Session.Source.RELAY], settings.CHAT_HISTORY_MAX_SESSIONS


def loose_exchanges(now: datetime) -> Iterator[QuerySet[Exchange]]:
    """Calls that belong to no session (a key that records times and counts only) are kept as long as relayed ones."""
    for scope in scopes():
        if scope.source == Session.Source.RELAY and scope.policy.keep_days:
            before = now - timedelta(days=scope.policy.keep_days)
            ended = Exchange.objects.filter(session=None, ended_at__lt=before)
            yield ended.filter(scope.keys)


def removable_sessions(scope: RetentionScope) -> QuerySet[Session]:
    """Whole sessions that no hold and no removal has a hand on."""
    return scope.sessions().filter(Q(hidden_at=None) | Q(hidden_at__gt=COPY_UNFINISHED), hold=False)


def remaining_sessions(scope: RetentionScope, now: datetime) -> QuerySet[Session]:
    return removable_sessions(scope).filter(hidden_at=None).exclude(pk__in=expired(scope, now).values("pk"))


def align_expiry(scope: RetentionScope, *, told: Callable[[], None]) -> None:
    """Bring stored times of expiry in line with the policy of today, where they are not."""
    stale, until = stale_expiry(scope)
    last = UUID(int=0)
    # In the order of the key, so that no batch looks through what the ones before have brought in line.
    while ids := list(stale.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        with writing():
            Session.objects.filter(pk__in=ids).update(expires_at=until)
        last = ids[-1]
        told()


def stale_expiry(scope: RetentionScope) -> tuple[QuerySet[Session], Any]:
    """The sessions whose time is not what it should be, and what that is."""
    rows, right = removable_sessions(scope), scope.policy.expiry(F)
    if right is None:
        return rows.exclude(expires_at=None), None
    return rows.filter(Q(expires_at=None) | Q(expires_at__lt=right) | Q(expires_at__gt=right)), right


def one_by_one(rows: QuerySet[Any]) -> Iterator[Any]:
    """Every row, a page at a time, in the order of the key: rows may go while we walk."""
    last = None
    while page := list((rows if last is None else rows.filter(pk__gt=last)).order_by("pk")[:100]):
        yield from page
        last = page[-1].pk
