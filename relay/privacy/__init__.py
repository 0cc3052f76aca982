"""Personal data that the relay keeps: runs, queued messages, budgets, usage and files put aside."""

from dataclasses import replace

from django.contrib.auth.models import AbstractUser
from django.db.models import Model
from django.utils import timezone

from history.privacy import register_personal_data, rows_of_table
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

# Rows about the calls of a user's keys, besides the record.
OF_KEYS: dict[str, type[Model]] = {
    "use_of_keys_by_day": KeyUse,
    "use_of_keys_by_minute": KeyMinute,
    "streams_of_keys": KeyStreams,
    "issued_ids": IssuedId,
    "named_replies": NamedReply,
}
MODELS: tuple[type[Model], ...] = (QueuedMessage, Run, Allowance, Spending, RecentMessage, *OF_KEYS.values())


def _stop_runs(user: AbstractUser) -> None:
    """The process of each run checks this column."""
    Run.objects.filter(owner=user.pk, ended_at=None).update(stop_requested_at=timezone.now())


def register() -> None:
    register_personal_data(replace(rows_of_table("waiting_messages", QueuedMessage, of="owner"), of_sessions=True))
    register_personal_data(replace(rows_of_table("runs", Run, of="owner"), of_sessions=True, shut=_stop_runs))
    register_personal_data(rows_of_table("allowance", Allowance, of="user"))
    register_personal_data(rows_of_table("use_by_day", Spending, of="user"))
    register_personal_data(rows_of_table("recent_messages", RecentMessage, of="user"))
    for name, model in OF_KEYS.items():
        register_personal_data(rows_of_table(name, model, of="key__owner"))
    register_personal_data(files_aside.personal_data())
