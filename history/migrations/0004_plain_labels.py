"""Labels and help texts in plain words. Nothing in the database changes."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history", "0003_session_state")]

    operations = [
        migrations.AlterModelOptions(
            name="daytally",
            options={"ordering": ["-day", "pk"], "verbose_name": "daily count", "verbose_name_plural": "daily counts"},
        ),
        migrations.AlterModelOptions(
            name="session",
            options={
                "base_manager_name": "objects",
                "ordering": ["-last_activity_at", "-id"],
                "permissions": [
                    ("read_session", "Can read sessions of other users"),
                    ("export_session", "Can export sessions of other users"),
                    ("hold_session", "Can hold sessions, and see hidden ones under hold"),
                ],
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
            },
        ),
        migrations.AlterField(
            model_name="apikey",
            name="concurrent_streams",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="concurrent streams"),
        ),
        migrations.AlterField(
            model_name="daytally",
            name="sessions",
            field=models.IntegerField(default=0, verbose_name="sessions started"),
        ),
        migrations.AlterField(
            model_name="exchange",
            name="heartbeat_at",
            field=models.DateTimeField(default=django.utils.timezone.now, verbose_name="last heartbeat"),
        ),
        migrations.AlterField(
            model_name="exchange",
            name="stop_requested_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="stop requested"),
        ),
        migrations.AlterField(
            model_name="importjob",
            name="heartbeat_at",
            field=models.DateTimeField(default=django.utils.timezone.now, verbose_name="last heartbeat"),
        ),
        migrations.AlterField(
            model_name="importjob",
            name="state",
            field=models.CharField(
                choices=[
                    ("uploading", "uploading"),
                    ("waiting", "waiting"),
                    ("running", "running"),
                    ("done", "done"),
                    ("failed", "failed"),
                ],
                default="uploading",
                max_length=10,
                verbose_name="state",
            ),
        ),
        migrations.AlterField(
            model_name="message", name="moved_head", field=models.BooleanField(verbose_name="set as head")
        ),
        migrations.AlterField(
            model_name="message",
            name="usage_source",
            field=models.CharField(blank=True, max_length=10, verbose_name="token count source"),
        ),
        migrations.AlterField(
            model_name="session",
            name="parent",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="children",
                to="history.session",
                verbose_name="parent session",
            ),
        ),
        migrations.AlterField(
            model_name="session",
            name="parent_call",
            field=models.CharField(blank=True, max_length=200, verbose_name="parent call"),
        ),
        migrations.AlterField(
            model_name="sharelink",
            name="follows",
            field=models.BooleanField(default=False, verbose_name="includes later messages"),
        ),
        migrations.AlterField(
            model_name="toolcall", name="created_at", field=models.DateTimeField(verbose_name="requested")
        ),
    ]
