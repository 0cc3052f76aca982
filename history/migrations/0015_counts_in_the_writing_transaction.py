"""Daily counts that are added by the transaction that writes: a key to upsert by, and numbers that may be subtracted.

What was counted before was up to a minute old: the table is made anew, and every day is marked to be counted.
"""

from datetime import UTC, date, datetime, time, timedelta

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Coalesce


def mark_days(apps, schema_editor):
    """Every day with rows, found by leaps over the index."""
    message, exchange = apps.get_model("history", "Message"), apps.get_model("history", "Exchange")
    stale = apps.get_model("history", "StaleDay")
    stale.objects.all().delete()
    day = date.min
    while day < date.max:
        since = datetime.combine(day, time.min, tzinfo=UTC)
        written = (
            message.objects.filter(created_at__gte=since).order_by("created_at").values_list("created_at", flat=True)
        )
        called = (
            exchange.objects.filter(started_at__gte=since).order_by("started_at").values_list("started_at", flat=True)
        )
        moments = [*written[:1], *called[:1]]
        if not moments:
            return
        day = min(moments).astimezone(UTC).date()
        stale.objects.create(day=day)
        if day < date.max:
            day += timedelta(days=1)


def leave_room_in_pages(apps, schema_editor):
    """So that PostgreSQL can write the next version of a count beside the last one, without touching an index."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE history_daytally SET (fillfactor = 50)")


class Migration(migrations.Migration):
    dependencies = [
        ("history", "0014_words_of_columns"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.DeleteModel(name="DayTally"),
        migrations.CreateModel(
            name="DayTally",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(verbose_name="day")),
                (
                    "source",
                    models.CharField(
                        choices=[("chat", "chat"), ("relay", "relay"), ("import", "import"), ("notebook", "notebook")],
                        max_length=10,
                        verbose_name="source",
                    ),
                ),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("model", models.CharField(blank=True, max_length=100, verbose_name="model")),
                ("sessions", models.IntegerField(default=0, verbose_name="sessions begun")),
                ("messages", models.IntegerField(default=0, verbose_name="messages")),
                ("answers", models.IntegerField(default=0, verbose_name="answers")),
                ("cut_short", models.IntegerField(default=0, verbose_name="answers cut short")),
                ("errors", models.IntegerField(default=0, verbose_name="errors")),
                ("input_tokens", models.BigIntegerField(default=0, verbose_name="tokens read")),
                ("output_tokens", models.BigIntegerField(default=0, verbose_name="tokens written")),
                ("cost", models.DecimalField(decimal_places=6, default=0, max_digits=16, verbose_name="cost")),
                ("tool_calls", models.IntegerField(default=0, verbose_name="tool calls")),
                ("tool_milliseconds", models.BigIntegerField(default=0, verbose_name="time of tools")),
                ("wait_0", models.IntegerField(default=0)),
                ("wait_1", models.IntegerField(default=0)),
                ("wait_2", models.IntegerField(default=0)),
                ("wait_3", models.IntegerField(default=0)),
                ("wait_4", models.IntegerField(default=0)),
                ("wait_5", models.IntegerField(default=0)),
                ("wait_6", models.IntegerField(default=0)),
                ("wait_7", models.IntegerField(default=0)),
                ("wait_8", models.IntegerField(default=0)),
                ("wait_9", models.IntegerField(default=0)),
                ("revision", models.BigIntegerField(default=0)),
                ("checked_revision", models.BigIntegerField(default=0)),
                (
                    "api_key",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="history.apikey",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "tally of a day",
                "verbose_name_plural": "tallies of days",
                "ordering": ["-day", "pk"],
                "indexes": [models.Index(fields=["owner", "day"], name="tally_of_owner")],
                "constraints": [
                    models.UniqueConstraint(
                        "day",
                        "owner",
                        Coalesce("api_key", 0),
                        "source",
                        "agent",
                        "model",
                        name="tally_one_row_per_key",
                    )
                ],
            },
        ),
        migrations.RunPython(mark_days, migrations.RunPython.noop),
        migrations.RunPython(leave_room_in_pages, migrations.RunPython.noop, elidable=False),
    ]
