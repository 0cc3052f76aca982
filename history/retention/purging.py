"""The purge: everything that is due under the current policies, in an order that a crash cannot confuse."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from history.models import Exchange, Message, SearchRow, Session
from history.record.expiry import RetentionScope, scopes
from history.retention import due, removal, trimming
from history.retention.removal import Progress, Removed
from history.retention.trimming import TrimPlan

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
    """Counts and budget of one purge."""

    now: datetime
    ends: float
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

    def staying(self, sessions: QuerySet[Session]) -> Iterator[Session]:
        for session in due.one_by_one(sessions):
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
    run = _Purge(now or timezone.now(), ends, progress or (lambda what, count: None))
    is_complete = True
    try:
        if dry_run:
            _count_due(run)
        else:
            _remove_due(run)
    except OutOfTime:
        is_complete = False
    return replace(PurgeReport(dry_run=dry_run, is_complete=is_complete), **run.counts)


def purge_due() -> PurgeReport:
    """The hourly purge of the server."""
    return purge(dry_run=False, budget=HOURLY_BUDGET)


# Removal.


def _remove_due(run: _Purge) -> None:
    while ids := list(Session.objects.being_removed().values_list("pk", flat=True)[: removal.GROUP]):
        run.note(resumed=len(ids))
        _finish(run, ids)
    _remove_all(run, due.unfinished(run.now), why="unfinished")
    for scope in scopes():
        due.align_expiry(scope, after_batch=run.check_time)
        _remove_all(run, due.expired(scope, run.now), why="expired")
        _remove_all(run, due.trashed(scope, run.now), why="trashed")
    for sessions in due.over_cap(run.now):
        _remove_all(run, sessions, why="over_cap")
    _remove_loose_exchanges(run)
    for scope in scopes():
        _trim_all(run, scope)
        _drop_all(run, scope)
    for blobs in removal.remove_orphaned_blobs(run.now):
        run.count(blobs=blobs)


def _remove_all(run: _Purge, sessions: QuerySet[Session], *, why: str) -> None:
    while ids := removal.mark(sessions, why=why):
        run.note(**{why: len(ids)})
        _finish(run, ids)


def _finish(run: _Purge, ids: list[Any]) -> None:
    for removed in removal.finish(ids):
        _count_removed(run, removed)


def _count_removed(run: _Purge, removed: Removed) -> None:
    run.count(messages=removed.messages, search_rows=removed.search_rows, exchanges=removed.exchanges)


def _remove_loose_exchanges(run: _Purge) -> None:
    for exchanges in due.loose_exchanges(run.now):
        for ids in removal.batches(exchanges):
            _count_removed(run, removal.remove_exchanges(ids))


def _trim_all(run: _Purge, scope: RetentionScope) -> None:
    for plan in _trims(run, scope):
        for removed in trimming.trim(plan):
            run.count(trimmed=removed.messages, search_rows=removed.search_rows)


def _drop_all(run: _Purge, scope: RetentionScope) -> None:
    for plan in _drops(run, scope):
        for dropped, search_rows in trimming.drop(plan, now=run.now):
            run.count(dropped=dropped, search_rows=search_rows)


def _trims(run: _Purge, scope: RetentionScope) -> Iterator[TrimPlan]:
    if limit := scope.policy.max_messages:
        for session in run.staying(trimming.too_long(due.remaining_sessions(scope, run.now), limit=limit)):
            yield trimming.plan_trim(session, limit=limit)


def _drops(run: _Purge, scope: RetentionScope) -> Iterator[TrimPlan]:
    if days := scope.policy.keep_body_days:
        before = run.now - timedelta(days=days)
        for session in run.staying(trimming.with_old_texts(due.remaining_sessions(scope, run.now), before=before)):
            yield trimming.plan_drop(session, before=before)


# Dry run.


def _count_due(run: _Purge) -> None:
    _count_sessions(run, Session.objects.being_removed(), why="resumed")
    _count_sessions(run, due.unfinished(run.now), why="unfinished")
    for scope in scopes():
        _count_sessions(run, due.expired(scope, run.now), why="expired")
        _count_sessions(run, due.trashed(scope, run.now), why="trashed")
    for sessions in due.over_cap(run.now):
        ids = list(sessions.values_list("pk", flat=True))
        run.going.update(ids)
        run.count(over_cap=len(ids))
        for start in range(0, len(ids), removal.BATCH):
            _count_rows(run, Session.objects.filter(pk__in=ids[start : start + removal.BATCH]))
    for exchanges in due.loose_exchanges(run.now):
        run.count(exchanges=exchanges.count())
    for scope in scopes():
        _count_thinning(run, scope)
    run.count(blobs=removal.orphaned_blobs(run.now).count())


def _count_sessions(run: _Purge, sessions: QuerySet[Session], *, why: str) -> None:
    run.count(**{why: sessions.count()})
    _count_rows(run, sessions)


def _count_rows(run: _Purge, sessions: QuerySet[Session]) -> None:
    inside = sessions.order_by().values("pk")
    run.count(
        messages=Message.objects.filter(session__in=inside).count(),
        search_rows=SearchRow.objects.filter(message__session__in=inside).count(),
        exchanges=Exchange.objects.filter(session__in=inside).count(),
    )


def _count_thinning(run: _Purge, scope: RetentionScope) -> None:
    trimmed: dict[UUID, int] = {}
    for plan in _trims(run, scope):
        trimmed[plan.session_id] = plan.cut
        run.count(trimmed=plan.entries().count(), search_rows=_search_rows(plan.entries()))
    for plan in _drops(run, scope):
        rows = plan.entries().filter(dropped_at=None, seq__gt=trimmed.get(plan.session_id, 0))
        run.count(dropped=rows.count(), search_rows=_search_rows(rows))


def _search_rows(rows: QuerySet[Message]) -> int:
    return SearchRow.objects.filter(message__in=rows.order_by().values("pk")).count()
