"""Messages that wait for the end of an answer, in the order in which they were written.

A row is deleted in the transaction that appends its message, so a crash neither loses nor repeats it. After a run that
did not end well the rows are held: nothing is sent by itself until the owner decides. A new message joins the queue
behind them and releases them, so the order stays.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from history.models import Session
from history.transactions import writing
from relay import attachments, broadcast
from relay.agent.settings import pick_agent
from relay.conversation.drafts import Draft, NotPossible, Sent
from relay.conversation.places import Place
from relay.database import in_database
from relay.models import QueuedMessage
from relay.providers.registry import router
from relay.queued_messages import release, waiting_at

MOST_QUEUED = 20
# A tool command whose process died is offered again after this time; no tool may take longer.
CLAIM = timedelta(minutes=15)


def enqueue(user: Any, session: Session, draft: Draft, place: Place) -> Sent:
    """Put a message behind those that wait there already, and release these: their owner goes on."""
    if QueuedMessage.objects.filter(session=session.pk).count() >= MOST_QUEUED:
        raise NotPossible(_("Enough messages are waiting here already. Wait for the answer, or stop it."))
    # What cannot be sent is refused while its writer is still there.
    attachments.parts_of(user, draft.attachments)
    pick_agent(draft.agent, otherwise=session.agent)
    if draft.model:
        router().route(draft.model)
    release(waiting_at(session.pk, place.seq))
    row = QueuedMessage.objects.create(
        session=session.pk,
        owner=user,
        text=draft.text,
        attachments=list(draft.attachments),
        agent=draft.agent,
        model=draft.model,
        after=place.seq,
    )
    return Sent(is_queued=True, queued_id=row.pk)


def claim(row: QueuedMessage) -> bool:
    """Whether this process carries out the tool command; for exactly one of those that try."""
    now = timezone.now()
    free = Q(claimed_at=None) | Q(claimed_at__lt=now - CLAIM)
    return bool(QueuedMessage.objects.filter(free, pk=row.pk).update(claimed_at=now))


def give_back(row: QueuedMessage) -> None:
    """It was refused: it waits in its place until its owner decides."""
    with writing():
        QueuedMessage.objects.filter(pk=row.pk).update(claimed_at=None, held_at=timezone.now())


def take(row: QueuedMessage) -> None:
    """Remove the row in the transaction that records its message."""
    QueuedMessage.objects.filter(pk=row.pk).delete()


def draft_of(row: QueuedMessage) -> Draft:
    return Draft(text=row.text, attachments=row.attachments, agent=row.agent, model=row.model)


async def queued(session: Session) -> list[QueuedMessage]:
    return await in_database(lambda: list(QueuedMessage.objects.filter(session=session.pk).order_by("pk")))


async def unqueue(session: Session, *, queued_id: int | None = None) -> int:
    """Withdraw one message, or all of them; how many there were."""
    count = await in_database(_unqueue, session.pk, queued_id)
    await broadcast.tell_session(session.pk, {"type": "session.changed"})
    return count


def _unqueue(session_id: UUID, queued_id: int | None) -> int:
    with writing():
        rows = QueuedMessage.objects.filter(session=session_id)
        return (rows if queued_id is None else rows.filter(pk=queued_id)).delete()[0]
