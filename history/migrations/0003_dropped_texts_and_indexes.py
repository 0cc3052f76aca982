"""How far the texts of a session were dropped, so that nobody walks them again, and indexes for two questions."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("history", "0002_search"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="dropped_through",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddIndex(
            model_name="exchange",
            index=models.Index(
                condition=models.Q(("session__isnull", True)), fields=["session", "ended_at"], name="exchange_loose"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["agent", "workspace", "-last_activity_at", "-id"], name="session_of_workspace"),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(("dropped_through__lte", models.F("version"))), name="session_drop_in_range"
            ),
        ),
    ]
