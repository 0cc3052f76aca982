"""Which sessions are being answered just now, asked for many at once."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from relay.models import Run


def answering(session_ids: Iterable[UUID]) -> set[UUID]:
    """Those of them with a run that has not ended, in whichever process it runs. One query."""
    wanted = set(session_ids)
    if not wanted:
        return set()
    return set(Run.objects.filter(session__in=wanted, ended_at=None).values_list("session", flat=True))
