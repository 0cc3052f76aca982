"""Partial indexes of parent and forked-from sessions, which SQLite uses after ANALYZE too."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


def _link(name, related_name, label):
    field = models.ForeignKey(
        "history.session", django.db.models.deletion.SET_NULL, related_name, verbose_name=label,
        blank=True, null=True, db_index=False,
    )  # fmt: skip
    return migrations.AlterField("session", name, field)


class Migration(migrations.Migration):
    dependencies = [("history", "0004_plain_labels")]

    operations = [
        _link("forked_from", "forks", "forked from"),
        _link("parent", "children", "parent session"),
        migrations.AddIndex(
            "session", models.Index(fields=["parent"], name="session_children", condition=Q(parent__isnull=False))
        ),
        migrations.AddIndex(
            "session",
            models.Index(fields=["forked_from"], name="session_forks", condition=Q(forked_from__isnull=False)),
        ),
    ]
