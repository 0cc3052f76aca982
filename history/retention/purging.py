"""The purge: everything that is due under the current policies, in an order that a crash cannot confuse.

It begins with the queries for what is due, and the updates of stored expiry times.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from history.db.bulk import one_by_one
from history.db.transactions import writing
from history.models import ApiKey, Exchange, Message, SearchRow, Session
from history.record.expiry import RetentionScope, scopes
from history.retention import removal, trimming
from history.retention.removal import BATCH, Progress, Removed
from history.retention.trimming import TrimPlan

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
            yield Exchange.objects.filter(scope.keys, session=None, ended_at__lt=before).order_by("ended_at")


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


HOURLY_BUDGET = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was removed, or would be. Blobs of a dry run are those that are unused already."""

    dry_run: bool
    is_complete: bool = True  # False: the budget ran out, and the next run continues
    expired: int = 0  # sessions, like the next four
    trashed: int = 0
    over_cap: int = 0
    unfinished: int = 0  # abandoned copies
    resumed: int = 0  # whose removal had begun before
    messages: int = 0  # entries that went with their sessions
    exchanges: int = 0
    trimmed: int = 0  # entries, from sessions that stay
    dropped: int = 0  # entries that lost their texts
    search_rows: int = 0
    blobs: int = 0

    @property
    def sessions(self) -> int:
        return self.expired + self.trashed + self.over_cap + self.unfinished + self.resumed


class OutOfTime(Exception):
    """The budget is used up."""


@dataclass
class _Purge:
    now: datetime
    ends: float
    dry_run: bool
    progress: Progress
    counts: dict[str, Any] = field(default_factory=dict)
    going: set[UUID] = field(default_factory=set)  # in a dry run: sessions over a cap, which are still there

    def note(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
            if count:
                self.progress(name, count)

    def count(self, **counts: int) -> None:
        """Add to the report. Raises `OutOfTime` between two batches."""
        self.note(**counts)
        self.check_time()

    def count_removed(self, removed: Removed) -> None:
        self.count(messages=removed.messages, search_rows=removed.search_rows, exchanges=removed.exchanges)

    def due_sessions(self) -> Iterator[tuple[str, QuerySet[Session]]]:
        """The sessions to remove, by reason. Each is looked up when the ones before it are gone."""
        yield "unfinished", unfinished(self.now)
        for scope in scopes():
            if not self.dry_run:
                align_expiry(scope, after_batch=self.check_time)
            yield "expired", expired(scope, self.now)
            yield "trashed", trashed(scope, self.now)
        for sessions in over_cap():
            yield "over_cap", sessions

    def staying(self, sessions: QuerySet[Session]) -> Iterator[Session]:
        for session in one_by_one(sessions):
            self.check_time()
            if session.pk not in self.going:
                yield session

    def check_time(self) -> None:
        """Every run removes something, however small its budget."""
        if time.monotonic() >= self.ends and any(self.counts.values()):
            raise OutOfTime


def purge(
    *,
    dry_run: bool = True,
    budget: timedelta | None = None,
    now: datetime | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> PurgeReport:
    """Remove what is due, or only report it. `progress(what, how_many)` is called after every batch."""
    ends = time.monotonic() + budget.total_seconds() if budget is not None else float("inf")
    run = _Purge(now or timezone.now(), ends, dry_run, progress or (lambda what, count: None))
    is_complete = True
    try:
        (_count_due if dry_run else _remove_due)(run)
    except OutOfTime:
        is_complete = False
    return PurgeReport(dry_run=dry_run, is_complete=is_complete, **run.counts)


def purge_due() -> PurgeReport:
    """The hourly purge of the server."""
    return purge(dry_run=False, budget=HOURLY_BUDGET)


def _remove_due(run: _Purge) -> None:
    while ids := list(Session.objects.being_removed().values_list("pk", flat=True)[: removal.GROUP]):
        _finish(run, ids, why="resumed")
    for why, sessions in run.due_sessions():
        while ids := removal.mark(sessions, why=why):
            _finish(run, ids, why=why)
    for exchanges in loose_exchanges(run.now):
        for batch in removal.batches(exchanges):
            run.count_removed(removal.remove_exchanges(batch))
    for scope in scopes():
        for plan in _trims(run, scope):
            for removed in trimming.trim(plan):
                run.count(trimmed=removed.messages, search_rows=removed.search_rows)
        for plan in _drops(run, scope):
            for dropped, search_rows in trimming.drop(plan, now=run.now):
                run.count(dropped=dropped, search_rows=search_rows)
    for blobs in removal.remove_orphaned_blobs(run.now):
        run.count(blobs=blobs)


def _finish(run: _Purge, ids: list[UUID], *, why: str) -> None:
    run.note(**{why: len(ids)})
    for removed in removal.finish(ids):
        run.count_removed(removed)


def _trims(run: _Purge, scope: RetentionScope) -> Iterator[TrimPlan]:
    if limit := scope.policy.max_messages:
        sessions = remaining_sessions(scope, run.now)
        for session in run.staying(sessions.filter(hold=False, version__gt=F("trimmed_through") + limit)):
            yield trimming.plan_trim(session, limit=limit)


def _drops(run: _Purge, scope: RetentionScope) -> Iterator[TrimPlan]:
    if days := scope.policy.keep_body_days:
        before = run.now - timedelta(days=days)
        for session in run.staying(trimming.with_old_texts(remaining_sessions(scope, run.now), before=before)):
            yield trimming.plan_drop(session, before=before)


def _count_due(run: _Purge) -> None:
    for why, sessions in chain([("resumed", Session.objects.being_removed())], run.due_sessions()):
        if why != "over_cap":
            run.count(**{why: sessions.count()})
            _count_rows(run, sessions)
            continue
        ids = list(sessions.values_list("pk", flat=True))
        run.going.update(ids)
        run.count(over_cap=len(ids))
        for start in range(0, len(ids), removal.BATCH):
            _count_rows(run, Session.objects.filter(pk__in=ids[start : start + removal.BATCH]))
    for exchanges in loose_exchanges(run.now):
        run.count(exchanges=exchanges.count())
    for scope in scopes():
        trimmed: dict[UUID, int] = {}
        for plan in _trims(run, scope):
            trimmed[plan.session_id] = plan.cut
            run.count(trimmed=plan.entries().count(), search_rows=_search_rows(plan.entries()))
        for plan in _drops(run, scope):
            rows = plan.entries().filter(dropped_at=None, seq__gt=trimmed.get(plan.session_id, 0))
            run.count(dropped=rows.count(), search_rows=_search_rows(rows))
    run.count(blobs=removal.orphaned_blobs(run.now).count())


def _count_rows(run: _Purge, sessions: QuerySet[Session]) -> None:
    inside = sessions.order_by().values("pk")
    run.count(
        messages=Message.objects.filter(session__in=inside).count(),
        search_rows=SearchRow.objects.filter(message__session__in=inside).count(),
        exchanges=Exchange.objects.filter(session__in=inside).count(),
    )


def _search_rows(rows: QuerySet[Message]) -> int:
    return SearchRow.objects.filter(message__in=rows.order_by().values("pk")).count()
