"""Labels and help texts in plain words. Nothing in the database changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="user",
            name="language",
            field=models.CharField(
                blank=True,
                choices=[("", "Same as browser"), ("en", "English"), ("zh-hans", "简体中文")],
                default="",
                max_length=10,
                verbose_name="language",
            ),
        ),
        migrations.AlterField(
            model_name="user",
            name="theme",
            field=models.CharField(
                choices=[("system", "Same as system"), ("light", "Light"), ("dark", "Dark")],
                default="system",
                max_length=10,
                verbose_name="theme",
            ),
        ),
    ]
