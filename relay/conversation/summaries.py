"""A summary, whichever door somebody comes through; what waits is sent when it is written."""

from __future__ import annotations

from typing import Any

from history.entries import Summary
from history.models import Message, Session
from relay.agents.turn import Turn
from relay.conversation import compressing
from relay.conversation.drafts import Client, Sent
from relay.conversation.sending import go_on
from relay.conversation.turns import answered
from relay.live import run_task
from relay.runtime.async_db import in_database


async def compress(
    user: Any, session: Session, *, model: str = "", instead_of: int = 0, client: Client | None = None
) -> Sent:
    return await compressing.begin(user, session, model=model, instead_of=instead_of, client=client, on_end=go_on)


async def carry_out(session: Session, sent: Sent, turn: Turn) -> list[int]:
    """What `compressing.prepare` prepared, to its end; the entries that came of it."""
    sent = await answered(session, sent, turn, on_end=go_on)
    live = run_task.running.get(sent.run) if sent.run else None
    if live is not None and live.task is not None:
        await live.task
    return await in_database(_summaries_after, session, sent.seq)


def _summaries_after(session: Session, seq: int) -> list[int]:
    rows = Message.objects.on_path(session).filter(seq__gt=seq, kind=Summary.kind)
    return list(rows.order_by("seq").values_list("seq", flat=True))
