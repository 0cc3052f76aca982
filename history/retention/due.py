"""Queries for what the current policies remove, and updates of stored expiry times."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, QuerySet

from history.db.bulk import one_by_one
from history.db.transactions import writing
from history.models import ApiKey, Exchange, Session
from history.record.expiry import RetentionScope, scopes
from history.retention.removal import BATCH

LIVES_FOR = timedelta(hours=1)  # of a copy, after its last batch


def expired(scope: RetentionScope, now: datetime) -> QuerySet[Session]:
    return scope.sessions().removable().filter(scope.policy.expired(now))


def trashed(scope: RetentionScope, now: datetime) -> QuerySet[Session]:
    limit = now - timedelta(hours=settings.PARLEY_TRASH_HOURS)
    hidden = scope.sessions().removable().deleted().filter(hidden_at__lte=limit)
    return hidden.exclude(pk__in=expired(scope, now).values("pk"))


def unfinished(now: datetime) -> QuerySet[Session]:
    """Abandoned copies: every batch of a copy updates `stored_at`."""
    return Session.objects.filter(state=Session.State.INCOMPLETE, stored_at__lt=now - LIVES_FOR)


def over_cap() -> Iterator[QuerySet[Session]]:
    """Per key, the sessions beyond its newest ones. Deleted and held sessions do not count."""
    for key in one_by_one(ApiKey.objects.all()):
        mine = Session.objects.open().filter(api_key=key, hold=False)
        cap = key.max_sessions
        if cap is None:
            mine, cap = mine.filter(source=Session.Source.RELAY), settings.CHAT_HISTORY_MAX_SESSIONS
        kept = mine.order_by("-last_activity_at", "-id").values_list("last_activity_at", "pk")
        for moment, pk in kept[cap - 1 : cap] if cap else ():
            yield mine.filter(Q(last_activity_at__lt=moment) | Q(last_activity_at=moment, pk__lt=pk))


def loose_exchanges(now: datetime) -> Iterator[QuerySet[Exchange]]:
    """Exchanges without a session (of keys that record metadata only) are kept as long as relayed sessions."""
    for scope in scopes():
        if scope.source == Session.Source.RELAY and scope.policy.keep_days:
            before = now - timedelta(days=scope.policy.keep_days)
            ended = Exchange.objects.filter(session=None, ended_at__lt=before)
            yield ended.filter(scope.keys)


def remaining_sessions(scope: RetentionScope, now: datetime) -> QuerySet[Session]:
    return scope.sessions().removable().open().exclude(pk__in=expired(scope, now).values("pk"))


def align_expiry(scope: RetentionScope, *, after_batch: Callable[[], None]) -> None:
    """Bring stored expiry times in line with the current policy."""
    stale, until = stale_expiry(scope)
    last = UUID(int=0)
    # In the order of the key, so that no batch scans the finished ones.
    while ids := list(stale.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        with writing():
            Session.objects.filter(pk__in=ids).update(expires_at=until)
        last = ids[-1]
        after_batch()


def stale_expiry(scope: RetentionScope) -> tuple[QuerySet[Session], Any]:
    """Sessions with a wrong expiry time, and the right one."""
    rows, right = scope.sessions().removable(), scope.policy.expiry(F)
    if right is None:
        return rows.exclude(expires_at=None), None
    return rows.filter(Q(expires_at=None) | Q(expires_at__lt=right) | Q(expires_at__gt=right)), right
