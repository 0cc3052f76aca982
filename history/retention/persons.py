"""Everything of one owner, removed for good: past the trash, never past a hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from history.models import Exchange, Message, Session
from history.retention import leftovers, removal
from history.retention.removal import Removed


@dataclass(frozen=True, slots=True)
class Erased:
    sessions: int
    blobs: int
    rows: Removed


def erase_everything_of(owner: Any, *, reason: str, progress: Callable[[int], None] = lambda count: None) -> Erased:
    """Sessions, calls that belong to none, and the blobs that nobody else refers to. What is held stays."""
    removed, sessions, blobs = Removed(), 0, set[str]()
    with _without_a_trace():
        for ids in _marked(owner, reason=reason):
            blobs |= _blobs_of(ids)
            removed += sum(removal.finish(ids), Removed())
            sessions += len(ids)
            progress(len(ids))
        for exchanges in removal.batches(loose_exchanges_of(owner)):
            blobs |= set(
                Exchange.blobs.through.objects.filter(exchange_id__in=exchanges).values_list("blob_id", flat=True)
            )
            removed += removal.remove_exchanges(exchanges)
        return Erased(sessions, sum(leftovers.remove_at_once(sorted(blobs))), removed)


def loose_exchanges_of(owner: Any) -> QuerySet[Exchange]:
    return Exchange.objects.filter(owner=owner, session=None)


def held_sessions_of(owner: Any) -> QuerySet[Session]:
    return Session.objects.filter(owner=owner, hold=True).order_by("pk")


def _marked(owner: Any, *, reason: str) -> Iterator[Sequence[UUID]]:
    """Those that are to go, some at a time; also those whose removal somebody began and did not finish."""
    own = Session.objects.filter(owner=owner)
    if begun := list(removal.sessions_being_removed().filter(owner=owner).values_list("pk", flat=True)):
        yield begun
    while ids := removal.mark(own, why="erased", reason=reason):
        yield ids


def _blobs_of(sessions: Sequence[UUID]) -> set[str]:
    said = Message.blobs.through.objects.filter(message__session_id__in=sessions)
    sent = Exchange.blobs.through.objects.filter(exchange__session_id__in=sessions)
    return {*said.values_list("blob_id", flat=True), *sent.values_list("blob_id", flat=True)}


@contextmanager
def _without_a_trace() -> Iterator[None]:
    """SQLite leaves what was deleted in its free pages, and words in its index, until they are written over.

    PostgreSQL's own vacuum does the same some minutes later.
    """
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA secure_delete = ON")
        try:
            yield
            cursor.execute("INSERT INTO history_searchindex(history_searchindex) VALUES ('optimize')")
            if not connection.in_atomic_block:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            cursor.execute("PRAGMA secure_delete = OFF")
