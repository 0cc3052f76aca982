"""A summary, whichever door somebody comes through; what waits is sent when it is written."""

from __future__ import annotations

from typing import Any

from history.entries import Summary
from history.models import Message, Session
from relay.agents.turn import Turn
from relay.conversation import compression
from relay.conversation.drafts import Client, SendResult
from relay.conversation.sending import send_next_queued
from relay.conversation.turns import start_answer
from relay.live import run_task
from relay.runtime.async_db import in_database


async def compress(
    user: Any, session: Session, *, model: str = "", instead_of: int = 0, client: Client | None = None
) -> SendResult:
    return await compression.start_compression(
        user, session, model=model, instead_of=instead_of, client=client, on_end=send_next_queued
    )


async def run_compression(session: Session, sent: SendResult, turn: Turn) -> list[int]:
    """What `compressing.prepare` prepared, to its end; the entries that came of it."""
    sent = await start_answer(session, sent, turn, on_end=send_next_queued)
    live = run_task.local_tasks.get(sent.run) if sent.run else None
    if live is not None and live.task is not None:
        await live.task
    return await in_database(_summaries_after, session, sent.seq)


def _summaries_after(session: Session, seq: int) -> list[int]:
    rows = Message.objects.on_path(session).filter(seq__gt=seq, kind=Summary.kind)
    return list(rows.order_by("seq").values_list("seq", flat=True))
