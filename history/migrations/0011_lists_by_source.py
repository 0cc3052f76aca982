from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("history", "0010_import_jobs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["source", "-last_activity_at", "-id"], name="session_newest_of_source"),
        ),
    ]
