"""Labels and help texts in plain words. Nothing in the database changes."""

import django.core.validators
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("relay", "0002_sessions_of_runs")]

    operations = [
        migrations.AlterField(
            model_name="agent",
            name="agents",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="For the tool call_agent. None selected: all other agents.",
                verbose_name="callable agents",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="compress_at",
            field=models.FloatField(
                blank=True,
                help_text="Share of the model’s window, such as 0.8. Empty: the default of the settings.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0.1),
                    django.core.validators.MaxValueValidator(1.0),
                ],
                verbose_name="compress at",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="environment",
            field=models.BooleanField(
                default=False,
                help_text="The conversation starts with the date, the system, its folders and its notebook.",
                verbose_name="knows its environment",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="folders",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="One per line. The agent sees what is in them. Only below PARLEY_FOLDERS.",
                verbose_name="working folders",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="is_default",
            field=models.BooleanField(default=False, verbose_name="default agent"),
        ),
        migrations.AlterField(
            model_name="agent",
            name="keep_turns",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="The newest turns that stay unchanged. Empty: the default of the settings.",
                null=True,
                validators=[django.core.validators.MinValueValidator(1)],
                verbose_name="turns kept whole",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="live_screen",
            field=models.BooleanField(
                default=False,
                help_text="Each call includes the current state of its tools.",
                verbose_name="sees live panels",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="max_turn_tokens",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Input and output, including the agents that it calls.",
                null=True,
                verbose_name="tokens per turn",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="max_turns",
            field=models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="turns in context"),
        ),
        migrations.AlterField(
            model_name="agent",
            name="model",
            field=models.CharField(
                blank=True, help_text="Empty: the user’s choice.", max_length=160, verbose_name="model"
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="name",
            field=models.SlugField(
                help_text="Stored with each of its messages.", max_length=100, unique=True, verbose_name="name"
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="planner_model",
            field=models.CharField(blank=True, max_length=160, verbose_name="planning model"),
        ),
        migrations.AlterField(
            model_name="agent",
            name="reviewer_model",
            field=models.CharField(blank=True, max_length=160, verbose_name="reviewing model"),
        ),
        migrations.AlterField(
            model_name="mcpserver", name="is_enabled", field=models.BooleanField(default=True, verbose_name="enabled")
        ),
        migrations.AlterField(
            model_name="mcpserver",
            name="looked_at",
            field=models.DateTimeField(blank=True, editable=False, null=True, verbose_name="checked"),
        ),
        migrations.AlterField(
            model_name="mcpserver",
            name="name",
            field=models.CharField(
                help_text="Its tools are called name__tool.",
                max_length=30,
                unique=True,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "Lowercase letters, digits and single hyphens."
                    )
                ],
                verbose_name="name",
            ),
        ),
        migrations.AlterField(
            model_name="mcpserver",
            name="seconds",
            field=models.PositiveSmallIntegerField(
                default=30,
                validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(600)],
                verbose_name="timeout in seconds",
            ),
        ),
        migrations.AlterField(
            model_name="mcpserver",
            name="transport",
            field=models.CharField(
                choices=[("stdio", "a program on this server (stdio)"), ("http", "an address (streamable HTTP)")],
                max_length=10,
                verbose_name="connection",
            ),
        ),
        migrations.AlterField(
            model_name="queuedmessage",
            name="claimed_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="running since"),
        ),
        migrations.AlterField(
            model_name="run",
            name="compression_asked_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="summary requested"),
        ),
        migrations.AlterField(
            model_name="run",
            name="heartbeat_at",
            field=models.DateTimeField(default=django.utils.timezone.now, verbose_name="last heartbeat"),
        ),
        migrations.AlterField(
            model_name="run",
            name="stop_requested_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="stop requested"),
        ),
    ]
