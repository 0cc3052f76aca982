"""Rows of the message queue: which belong to a conversation, and whether they are held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from history.db.transactions import writing
from history.record.paths import is_on_way
from relay.models import QueuedMessage, Run

# The error of a tool command that was not carried out to its end. The errors of others are classes of exceptions.
INTERRUPTED = "Interrupted"
# After a run that ended so, what waits for it is sent or goes on waiting; after any other it is held.
SUCCESSFUL_OUTCOMES = frozenset({Run.Outcome.DONE, Run.Outcome.LIMIT, Run.Outcome.WAITING})


def queued_at(session_id: UUID, leaf: int) -> list[QueuedMessage]:
    """The queue of the conversation that ends at `leaf`, oldest first. Messages for other branches are not in it."""
    rows = QueuedMessage.objects.filter(session=session_id).order_by("pk")
    return [row for row in rows if is_on_way(session_id, row.after, to=leaf)]


def sendable_at(session_id: UUID, leaf: int) -> list[QueuedMessage]:
    """The same without those that were refused."""
    return [row for row in queued_at(session_id, leaf) if not row.error]


def release_rows(rows: Sequence[QueuedMessage]) -> None:
    held = [row.pk for row in rows if row.held_at is not None]
    if held:
        QueuedMessage.objects.filter(pk__in=held).update(held_at=None)


def release_queue(session_id: UUID, leaf: int) -> None:
    """The owner sends the whole queue: it continues what is on the screen, wherever it was written."""
    rows = QueuedMessage.objects.filter(session=session_id)
    rows.update(held_at=None, error="")
    here = {row.pk for row in queued_at(session_id, leaf)}
    rows.exclude(pk__in=here).update(after=leaf)


def hold_queue(session_id: UUID, leaf: int) -> None:
    """A run did not end well: what waits for it is not sent by itself."""
    waiting = [row.pk for row in queued_at(session_id, leaf)]
    if waiting:
        QueuedMessage.objects.filter(pk__in=waiting, held_at=None, claimed_at=None).update(held_at=timezone.now())


def hold_with_error(rows: QuerySet[QueuedMessage], *, error: str) -> int:
    """These were refused, or their tool command was not carried out to its end: they wait for their owner."""
    return rows.update(claimed_at=None, process="", held_at=timezone.now(), error=error)


def release_claims_of_processes(names: Sequence[str]) -> set[UUID]:
    """The tool commands of processes that are gone; the sessions that they belong to."""
    return _give_back(QueuedMessage.objects.filter(process__in=names, claimed_at__isnull=False))


def release_claims_before(moment: datetime) -> set[UUID]:
    """The same for processes of other machines."""
    return _give_back(QueuedMessage.objects.filter(claimed_at__lt=moment))


def _give_back(rows: QuerySet[QueuedMessage]) -> set[UUID]:
    found = dict(rows.values_list("pk", "session"))
    if found:
        with writing():
            hold_with_error(rows.filter(pk__in=found), error=INTERRUPTED)
    return set(found.values())
