"""What the carrier keeps about people: what they may use and have used, what waits to be sent, and their runs."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import AbstractUser
from django.utils import timezone

from history.persons import register_holding, rows_holding
from relay.models import Allowance, QueuedMessage, RecentMessage, Run, Spending


def _stop_runs(person: AbstractUser) -> None:
    """Whichever process carries them out looks for this."""
    Run.objects.filter(owner=person.pk, ended_at=None).update(stop_requested_at=timezone.now())


def register() -> None:
    register_holding(rows_holding("waiting_messages", QueuedMessage, of="owner"))
    register_holding(replace(rows_holding("runs", Run, of="owner"), shut=_stop_runs))
    register_holding(rows_holding("allowance", Allowance, of="user"))
    register_holding(rows_holding("use_by_day", Spending, of="user"))
    register_holding(rows_holding("recent_messages", RecentMessage, of="user"))
