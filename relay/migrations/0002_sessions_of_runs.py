"""Foreign keys from runs and queued messages to their sessions. Rows of sessions that are gone are removed first."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def remove_orphans(apps: Any, schema_editor: Any) -> None:
    sessions = apps.get_model("history", "Session").objects.values("pk")
    for name in ("Run", "QueuedMessage"):
        apps.get_model("relay", name).objects.exclude(session__in=sessions).delete()


class Migration(migrations.Migration):
    dependencies = [("history", "0002_remove_session_continues"), ("relay", "0001_initial")]

    operations = [
        migrations.RunPython(remove_orphans, migrations.RunPython.noop, elidable=True),
        migrations.AlterField(
            model_name="run",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="history.session",
                verbose_name="session",
            ),
        ),
        migrations.AlterField(
            model_name="queuedmessage",
            name="session",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="history.session",
                verbose_name="session",
            ),
        ),
    ]
