"""Rows of the message queue: which belong to a conversation, and whether they are held."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from history.paths import is_on_way
from relay.models import QueuedMessage, Run

# After a run that ended so, what waits for it is sent or goes on waiting; after any other it is held.
ENDED_WELL = frozenset({Run.Outcome.DONE, Run.Outcome.LIMIT, Run.Outcome.WAITING})


def waiting_at(session_id: UUID, leaf: int) -> list[QueuedMessage]:
    """The queue of the conversation that ends at `leaf`, oldest first. Messages for other branches are not in it."""
    rows = QueuedMessage.objects.filter(session=session_id).order_by("pk")
    return [row for row in rows if is_on_way(session_id, row.after, to=leaf)]


def release(rows: Sequence[QueuedMessage]) -> None:
    held = [row.pk for row in rows if row.held_at is not None]
    if held:
        QueuedMessage.objects.filter(pk__in=held).update(held_at=None)


def release_all(session_id: UUID, leaf: int) -> None:
    """The owner sends the whole queue: it continues what is on the screen, wherever it was written."""
    rows = QueuedMessage.objects.filter(session=session_id)
    rows.update(held_at=None)
    here = {row.pk for row in waiting_at(session_id, leaf)}
    rows.exclude(pk__in=here).update(after=leaf)


def hold(session_id: UUID, leaf: int) -> None:
    """A run did not end well: what waits for it is not sent by itself."""
    waiting = [row.pk for row in waiting_at(session_id, leaf)]
    if waiting:
        QueuedMessage.objects.filter(pk__in=waiting, held_at=None).update(held_at=timezone.now())
