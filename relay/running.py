"""What is being answered just now, in whichever process: asked of the database."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from history.models import Exchange
from relay.models import Run

# What a call to the model that summarises is noted as: it answers nobody.
SUMMARISER = "summariser"


def answering(session_ids: Iterable[UUID]) -> set[UUID]:
    """Those of them with a run that has not ended, in whichever process it runs. One query."""
    wanted = set(session_ids)
    if not wanted:
        return set()
    return set(Run.objects.filter(session__in=wanted, ended_at=None).values_list("session", flat=True))


def open_exchange_of(run: Run) -> Exchange | None:
    """The answer that this run waits for, if it does. Another run may have begun at the same place after it."""
    waiting = Exchange.objects.filter(session_id=run.session, ended_at=None, after=run.leaf)
    begun = waiting.filter(started_at__gte=run.started_at).order_by("started_at")
    return next((one for one in begun if one.metadata.get("role") != SUMMARISER), None)
