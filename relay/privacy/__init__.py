"""Personal data that the relay keeps: runs, queued messages, budgets, usage and files put aside."""

from dataclasses import replace

from django.contrib.auth.models import AbstractUser
from django.db.models import Model
from django.utils import timezone

from history.privacy import register_personal_data, rows_of_table
from relay import models
from relay.digest import kept_files

# Name of the data → table, and the path from its rows to the user.
TABLES: dict[str, tuple[type[Model], str]] = {
    "waiting_messages": (models.QueuedMessage, "owner"),
    "runs": (models.Run, "owner"),
    "allowance": (models.Allowance, "user"),
    "use_by_day": (models.Spending, "user"),
    "recent_messages": (models.RecentMessage, "user"),
    "use_of_keys_by_day": (models.KeyUse, "key__owner"),
    "use_of_keys_by_minute": (models.KeyMinute, "key__owner"),
    "streams_of_keys": (models.KeyStreams, "key__owner"),
    "issued_ids": (models.IssuedId, "key__owner"),
    "arrivals_of_keys": (models.KeyArrival, "key__owner"),
    "limits_of_plans": (models.PlanLimits, "key__owner"),
    "named_replies": (models.NamedReply, "key__owner"),
}


def _stop_runs(user: AbstractUser) -> None:
    """The process of each run checks this column."""
    models.Run.objects.filter(owner=user.pk, ended_at=None).update(stop_requested_at=timezone.now())


def register() -> None:
    tables = {name: rows_of_table(name, model, of=path) for name, (model, path) in TABLES.items()}
    tables["waiting_messages"] = replace(tables["waiting_messages"], of_sessions=True)
    tables["runs"] = replace(tables["runs"], of_sessions=True, shut=_stop_runs)
    for data in (*tables.values(), kept_files.personal_data()):
        register_personal_data(data)
