from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("relay", "0009_compression_wishes")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="summarising_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="summarising since"),
        ),
    ]
