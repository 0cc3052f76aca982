"""`Session.state` in place of two dates of 1970 in `Session.hidden_at` that marked a state."""

from datetime import UTC, datetime
from typing import Any

from django.db import migrations, models
from django.db.models import F, Q

REMOVAL_STARTED = datetime(1970, 1, 1, tzinfo=UTC)
COPY_UNFINISHED = datetime(1970, 1, 2, tzinfo=UTC)


def move_dates_to_state(apps: Any, schema_editor: Any) -> None:
    sessions = apps.get_model("history", "Session").objects.using(schema_editor.connection.alias)
    sessions.filter(hidden_at__gt=COPY_UNFINISHED).update(state="deleted")
    sessions.filter(hidden_at=COPY_UNFINISHED).update(state="incomplete", hidden_at=None)
    # The time of its deletion was overwritten. The time of its last change is the nearest that is known.
    sessions.filter(hidden_at=REMOVAL_STARTED).update(state="removing", hidden_at=F("changed_at"))


def move_state_to_dates(apps: Any, schema_editor: Any) -> None:
    sessions = apps.get_model("history", "Session").objects.using(schema_editor.connection.alias)
    sessions.filter(state="incomplete").update(hidden_at=COPY_UNFINISHED)
    sessions.filter(state="removing").update(hidden_at=REMOVAL_STARTED)


class Migration(migrations.Migration):
    dependencies = [("history", "0002_remove_session_continues")]

    operations = [
        migrations.AddField(
            "session",
            "state",
            models.CharField(
                choices=[
                    ("open", "open"),
                    ("deleted", "deleted"),
                    ("incomplete", "incomplete copy"),
                    ("removing", "removal started"),
                ],
                default="open",
                max_length=10,
                verbose_name="state",
            ),
        ),
        # While the index `session_trash` finds the dates.
        migrations.RunPython(move_dates_to_state, move_state_to_dates),
        migrations.RemoveIndex("session", "session_trash"),
        migrations.RemoveIndex("session", "session_deleted"),
        migrations.AddIndex(
            "session", models.Index(condition=Q(state="deleted"), fields=["hidden_at"], name="session_trash")
        ),
        migrations.AddIndex(
            "session", models.Index(condition=Q(state="deleted"), fields=["owner", "hidden_at"], name="session_deleted")
        ),
        migrations.AddIndex(
            "session", models.Index(condition=Q(state="incomplete"), fields=["stored_at"], name="session_incomplete")
        ),
        migrations.AddIndex(
            "session", models.Index(condition=Q(state="removing"), fields=["id"], name="session_removing")
        ),
        migrations.AddConstraint(
            "session",
            models.CheckConstraint(
                condition=Q(hidden_at__isnull=True, state__in=["open", "incomplete"])
                | Q(hidden_at__isnull=False, state__in=["deleted", "removing"]),
                name="session_deletion_has_a_time",
            ),
        ),
    ]
