"""Which sessions are being answered just now, asked for many at once."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.utils import timezone

from relay.models import Run


def answering(session_ids: Iterable[UUID]) -> set[UUID]:
    """Those of them with a run that has not ended, in whichever process it runs. One query."""
    wanted = set(session_ids)
    if not wanted:
        return set()
    return set(Run.objects.filter(session__in=wanted, ended_at=None).values_list("session", flat=True))


def ask_to_stop(session_id: UUID) -> None:
    """Whoever answers there reads it, in whichever process, and ends with what it has."""
    Run.objects.filter(session=session_id, ended_at=None, stop_requested_at=None).update(
        stop_requested_at=timezone.now()
    )
