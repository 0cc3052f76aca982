"""`message_count` counts what people see as messages: not the results of tools, and nothing internal."""

from django.db import migrations
from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce


def recount(apps, schema_editor):
    session, message = apps.get_model("history", "Session"), apps.get_model("history", "Message")
    seen = message.objects.filter(
        session=OuterRef("pk"), on_path=True, is_internal=False, kind__in=("model_input", "model_output")
    )
    counted = seen.order_by().values("session").annotate(number=Count("pk")).values("number")
    session._base_manager.update(message_count=Coalesce(Subquery(counted), 0))


class Migration(migrations.Migration):
    dependencies = [
        ("history", "0019_readings_seen"),
    ]

    operations = [
        migrations.RunPython(recount, migrations.RunPython.noop),
    ]
