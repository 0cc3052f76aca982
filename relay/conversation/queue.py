"""Messages that wait for the end of an answer, in the order in which they were written.

A row is deleted in the transaction that appends its message, so a crash neither loses nor repeats it. A tool command is
a row while it is carried out, also where nothing waits before it. After a run that did not end well the rows are held:
nothing is sent by itself until the owner decides. A new message joins the queue behind them and releases them, so the
order stays. A message that is refused (its agent or a file is gone) is held alone, with the reason, and does not keep
those behind it from being sent.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext as _

from history.db.transactions import writing
from history.models import Session
from relay.agents.settings import pick_agent
from relay.chat import attachments
from relay.conversation.drafts import Draft, NotPossible
from relay.conversation.positions import InsertPosition
from relay.live import groups
from relay.live.queued_messages import INTERRUPTED, hold_with_error, release_rows, sendable_at
from relay.models import QueuedMessage
from relay.providers.registry import router
from relay.runtime import process_locks
from relay.runtime.async_db import in_database

MAX_QUEUED = 20


def enqueue(user: Any, session: Session, draft: Draft, place: InsertPosition) -> QueuedMessage:
    """Put a message behind those that wait there already, and release these: their owner goes on."""
    if QueuedMessage.objects.filter(session=session.pk).count() >= MAX_QUEUED:
        raise NotPossible(_("Enough messages are waiting here already. Wait for the answer, or stop it."))
    # What cannot be sent is refused while its writer is still there.
    attachments.parts_of(user, draft.attachments)
    pick_agent(draft.agent, otherwise=session.agent)
    if draft.model:
        router().route(draft.model)
    release_rows(sendable_at(session.pk, place.seq))
    return QueuedMessage.objects.create(
        session=session.pk,
        owner=user,
        text=draft.text,
        attachments=list(draft.attachments),
        agent=draft.agent,
        model=draft.model,
        after=place.seq,
    )


def claim_message(row: QueuedMessage) -> bool:
    """Whether this process carries out the tool command; for exactly one of those that try."""
    free = QueuedMessage.objects.filter(pk=row.pk, claimed_at=None)
    return bool(free.update(claimed_at=timezone.now(), process=process_locks.name_here()))


def hold_message(row: QueuedMessage, error: Exception | None = None) -> None:
    """It was refused, or not carried out to its end: it waits until its owner decides."""
    with writing():
        hold_with_error(
            QueuedMessage.objects.filter(pk=row.pk), error=type(error).__name__[:40] if error else INTERRUPTED
        )


def remove_message(row: QueuedMessage) -> bool:
    """Remove the row in the transaction that records its message. False: it was not there any more."""
    return bool(QueuedMessage.objects.filter(pk=row.pk).delete()[0])


def draft_of(row: QueuedMessage) -> Draft:
    return Draft(text=row.text, attachments=row.attachments, agent=row.agent, model=row.model)


async def list_queued(session: Session) -> list[QueuedMessage]:
    return await in_database(lambda: list(QueuedMessage.objects.filter(session=session.pk).order_by("pk")))


async def unqueue(session: Session, *, queued_id: int | None = None) -> int:
    """Withdraw one message, or all of them; how many there were."""
    count = await in_database(_unqueue, session.pk, queued_id)
    groups.notify_session(session.pk)
    return count


def _unqueue(session_id: UUID, queued_id: int | None) -> int:
    with writing():
        rows = QueuedMessage.objects.filter(session=session_id)
        return (rows if queued_id is None else rows.filter(pk=queued_id)).delete()[0]
