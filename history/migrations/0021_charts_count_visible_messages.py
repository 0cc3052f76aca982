"""Mark all days to be counted anew: charts count the messages that people see, as lists do."""

from django.db import migrations


def mark_days(apps, schema_editor):
    tally, stale = apps.get_model("history", "DayTally"), apps.get_model("history", "StaleDay")
    days = tally.objects.order_by("day").values_list("day", flat=True).distinct()
    stale.objects.bulk_create(stale(day=day) for day in days)


class Migration(migrations.Migration):
    dependencies = [
        ("history", "0020_count_visible_messages"),
    ]

    operations = [
        migrations.RunPython(mark_days, migrations.RunPython.noop),
    ]
