"""Tables for the credentials of a key's latest call, and for the limits of subscriptions."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history", "0004_plain_labels"), ("relay", "0003_plain_labels")]

    operations = [
        migrations.CreateModel(
            name="KeyArrival",
            fields=[
                (
                    "key",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="history.apikey",
                    ),
                ),
                ("at", models.DateTimeField()),
                ("key_header", models.CharField(max_length=40)),
                ("has_login", models.BooleanField()),
                ("has_account", models.BooleanField()),
                ("client", models.CharField(blank=True, max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name="PlanLimits",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("provider", models.CharField(max_length=60)),
                ("headers", models.JSONField(default=dict)),
                ("at", models.DateTimeField()),
                (
                    "key",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="history.apikey",
                    ),
                ),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("key", "provider"), name="plan_limits_once")]},
        ),
    ]
