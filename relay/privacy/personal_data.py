"""What the carrier keeps about people: what they may use and have used, what waits to be sent, and their runs."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import AbstractUser
from django.db.models import Model
from django.utils import timezone

from history.privacy import register_holding, rows_holding
from relay.digest import files_aside
from relay.models import (
    Allowance,
    IssuedId,
    KeyMinute,
    KeyStreams,
    KeyUse,
    NamedReply,
    QueuedMessage,
    RecentMessage,
    Run,
    Spending,
)

# What was kept of their keys' calls, beside the record.
OF_KEYS: dict[str, type[Model]] = {
    "use_of_keys_by_day": KeyUse,
    "use_of_keys_by_minute": KeyMinute,
    "streams_of_keys": KeyStreams,
    "issued_ids": IssuedId,
    "named_replies": NamedReply,
}
MODELS: tuple[type[Model], ...] = (QueuedMessage, Run, Allowance, Spending, RecentMessage, *OF_KEYS.values())


def _stop_runs(person: AbstractUser) -> None:
    """Whichever process carries them out looks for this."""
    Run.objects.filter(owner=person.pk, ended_at=None).update(stop_requested_at=timezone.now())


def register() -> None:
    register_holding(rows_holding("waiting_messages", QueuedMessage, of="owner"))
    register_holding(replace(rows_holding("runs", Run, of="owner"), shut=_stop_runs))
    register_holding(rows_holding("allowance", Allowance, of="user"))
    register_holding(rows_holding("use_by_day", Spending, of="user"))
    register_holding(rows_holding("recent_messages", RecentMessage, of="user"))
    for name, model in OF_KEYS.items():
        register_holding(rows_holding(name, model, of="key__owner"))
    register_holding(files_aside.holding())
