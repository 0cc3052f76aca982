"""The tables of chats, agents and the gateway, and the agent that a new installation starts with."""

import uuid

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

INSTRUCTION = """\
You are a helpful assistant. Answer in the language in which you are asked, clearly and without padding, in Markdown \
where it helps.

Use your tools rather than guess: look up the time, the state of the server, and what was said in earlier \
conversations. Say so when you do not know something or could not do it.

Answer a plain question at once. When you were given a task of several steps, do them one after the other and call \
finish_task with the result when nothing is left to do. Call ask_user when only the person can decide or know.\
"""
TOOLS = [
    "sys_monitor",
    "current_time",
    "search_history",
    "read_session",
    "edit_notebook",
    "update_plan",
    "compress_chat_history",
    "finish_task",
    "ask_user",
]


def create_default_agent(apps, schema_editor):
    agents = apps.get_model("relay", "Agent").objects.using(schema_editor.connection.alias)
    if not agents.exists():
        agents.create(name="assistant", label="Assistant", instruction=INSTRUCTION, tools=TOOLS, is_default=True)


class Migration(migrations.Migration):
    initial = True

    dependencies = [("history", "0001_initial"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            name="JournalPosition",
            fields=[
                ("journal", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("position", models.JSONField(default=dict)),
                ("digested_at", models.DateTimeField(blank=True, null=True, verbose_name="digested up to")),
                ("lost_calls", models.PositiveBigIntegerField(default=0, verbose_name="calls lost")),
                ("lost_bytes", models.PositiveBigIntegerField(default=0, verbose_name="bytes lost")),
                ("lost_at", models.DateTimeField(blank=True, null=True, verbose_name="last lost")),
                ("lost_why", models.TextField(blank=True, verbose_name="why")),
            ],
            options={"verbose_name": "journal", "verbose_name_plural": "journals"},
        ),
        migrations.CreateModel(
            name="McpServer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        help_text="Its tools are called name__tool.",
                        max_length=30,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "Small letters, digits and single dashes."
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
                (
                    "transport",
                    models.CharField(
                        choices=[
                            ("stdio", "a program on this server (stdio)"),
                            ("http", "an address (streamable HTTP)"),
                        ],
                        max_length=10,
                        verbose_name="reached by",
                    ),
                ),
                ("command", models.CharField(blank=True, max_length=500, verbose_name="program")),
                ("arguments", models.JSONField(blank=True, default=list, verbose_name="arguments")),
                ("url", models.CharField(blank=True, max_length=500, verbose_name="address")),
                ("environment", models.TextField(blank=True, verbose_name="environment")),
                ("headers", models.TextField(blank=True, verbose_name="headers")),
                (
                    "seconds",
                    models.PositiveSmallIntegerField(
                        default=30,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(600),
                        ],
                        verbose_name="seconds for a call",
                    ),
                ),
                ("is_enabled", models.BooleanField(default=True, verbose_name="switched on")),
                ("tools", models.JSONField(blank=True, default=list, editable=False, verbose_name="tools")),
                ("looked_at", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="looked at")),
                ("problem", models.TextField(blank=True, editable=False, verbose_name="problem")),
            ],
            options={"verbose_name": "MCP server", "verbose_name_plural": "MCP servers", "ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Agent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.SlugField(
                        help_text="Stored with everything it says.", max_length=100, unique=True, verbose_name="name"
                    ),
                ),
                ("label", models.CharField(blank=True, max_length=100, verbose_name="shown as")),
                ("instruction", models.TextField(blank=True, verbose_name="system instruction")),
                (
                    "model",
                    models.CharField(
                        blank=True, help_text="Empty: as the person picks.", max_length=160, verbose_name="model"
                    ),
                ),
                ("planner_model", models.CharField(blank=True, max_length=160, verbose_name="model that plans")),
                ("reviewer_model", models.CharField(blank=True, max_length=160, verbose_name="model that reviews")),
                ("tools", models.JSONField(blank=True, default=list, verbose_name="tools")),
                ("max_steps", models.PositiveSmallIntegerField(default=12, verbose_name="model calls per turn")),
                ("max_turns", models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="turns it is told")),
                (
                    "max_answer_tokens",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="tokens per answer"),
                ),
                ("temperature", models.FloatField(blank=True, null=True, verbose_name="temperature")),
                ("reasoning_effort", models.CharField(blank=True, max_length=20, verbose_name="reasoning effort")),
                ("is_default", models.BooleanField(default=False, verbose_name="answers unless another is picked")),
                (
                    "agents",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="With the tool call_agent. None: all others.",
                        verbose_name="agents it may call",
                    ),
                ),
                (
                    "compress_at",
                    models.FloatField(
                        blank=True,
                        help_text="Share of the model's window, such as 0.8. Empty: as the settings say.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.1),
                            django.core.validators.MaxValueValidator(1.0),
                        ],
                        verbose_name="compress at",
                    ),
                ),
                (
                    "keep_turns",
                    models.PositiveSmallIntegerField(
                        blank=True,
                        help_text="So many of the newest stay as they are. Empty: as the settings say.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="turns left whole",
                    ),
                ),
                (
                    "max_turn_tokens",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Read and written, with the agents that it calls.",
                        null=True,
                        verbose_name="tokens per turn",
                    ),
                ),
                (
                    "environment",
                    models.BooleanField(
                        default=False,
                        help_text="A conversation begins with the date, the system, its folders and its notebook.",
                        verbose_name="knows its surroundings",
                    ),
                ),
                (
                    "folders",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="One on each line; it is told what is in them. Only below PARLEY_FOLDERS.",
                        verbose_name="working folders",
                    ),
                ),
                (
                    "live_screen",
                    models.BooleanField(
                        default=False,
                        help_text="With each call it is told what its tools show just now.",
                        verbose_name="sees live panels",
                    ),
                ),
            ],
            options={
                "verbose_name": "agent",
                "verbose_name_plural": "agents",
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("is_default", True)), fields=("is_default",), name="agent_one_default"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Allowance",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "messages_per_minute",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="messages per minute"),
                ),
                (
                    "tokens_per_day",
                    models.PositiveBigIntegerField(blank=True, null=True, verbose_name="tokens per day"),
                ),
                (
                    "cost_per_day",
                    models.DecimalField(
                        blank=True,
                        decimal_places=4,
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cost per day",
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="allowance",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={"verbose_name": "allowance", "verbose_name_plural": "allowances"},
        ),
        migrations.CreateModel(
            name="QueuedMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("session", models.UUIDField(db_index=True, verbose_name="session")),
                ("text", models.TextField(verbose_name="text")),
                ("attachments", models.JSONField(blank=True, default=list, verbose_name="attachments")),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("model", models.CharField(blank=True, max_length=160, verbose_name="model")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="written")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                ("after", models.PositiveBigIntegerField(default=0, verbose_name="after entry")),
                ("claimed_at", models.DateTimeField(blank=True, null=True, verbose_name="being carried out since")),
                ("held_at", models.DateTimeField(blank=True, null=True, verbose_name="held since")),
                ("error", models.CharField(blank=True, max_length=40, verbose_name="error")),
                ("process", models.CharField(blank=True, max_length=40, verbose_name="process")),
            ],
            options={"verbose_name": "waiting message", "verbose_name_plural": "waiting messages", "ordering": ["pk"]},
        ),
        migrations.CreateModel(
            name="IssuedId",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
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
            options={"constraints": [models.UniqueConstraint(fields=("name", "key"), name="issued_id_once")]},
        ),
        migrations.CreateModel(
            name="KeyMinute",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.PositiveBigIntegerField(db_index=True)),
                ("requests", models.PositiveBigIntegerField(default=0)),
                ("tokens", models.PositiveBigIntegerField(default=0)),
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
            options={"constraints": [models.UniqueConstraint(fields=("key", "minute"), name="key_minute_once")]},
        ),
        migrations.CreateModel(
            name="KeyStreams",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("process", models.CharField(max_length=120)),
                ("count", models.PositiveIntegerField(default=0)),
                ("at", models.DateTimeField(db_index=True)),
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
            options={
                "constraints": [models.UniqueConstraint(fields=("key", "process"), name="key_streams_of_process")]
            },
        ),
        migrations.CreateModel(
            name="KeyUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True, verbose_name="day")),
                ("requests", models.PositiveBigIntegerField(default=0, verbose_name="requests")),
                ("tokens", models.PositiveBigIntegerField(default=0, verbose_name="tokens")),
                ("cost", models.DecimalField(decimal_places=6, default=0, max_digits=14, verbose_name="cost")),
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
            options={
                "verbose_name": "use of a key",
                "verbose_name_plural": "use of keys by day",
                "ordering": ["-day", "key"],
                "constraints": [models.UniqueConstraint(fields=("key", "day"), name="key_use_one_row_per_day")],
            },
        ),
        migrations.CreateModel(
            name="NamedReply",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("seq", models.PositiveBigIntegerField()),
                (
                    "key",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="history.apikey",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="history.session"
                    ),
                ),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("name", "key"), name="named_reply_once")]},
        ),
        migrations.CreateModel(
            name="RecentMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["user", "at"], name="recent_message_of_user")]},
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("session", models.UUIDField(verbose_name="session")),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("model", models.CharField(blank=True, max_length=160, verbose_name="model")),
                ("origin", models.PositiveBigIntegerField(default=0, verbose_name="answers entry")),
                ("leaf", models.PositiveBigIntegerField(default=0, verbose_name="leaf")),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="started")),
                (
                    "heartbeat_at",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="last sign of life"),
                ),
                ("stop_requested_at", models.DateTimeField(blank=True, null=True, verbose_name="stop asked")),
                ("ended_at", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("done", "done"),
                            ("waiting", "waiting for an answer"),
                            ("limit", "stopped at a limit"),
                            ("stopped", "stopped"),
                            ("failed", "failed"),
                            ("lost", "lost"),
                        ],
                        max_length=10,
                        verbose_name="outcome",
                    ),
                ),
                ("error", models.TextField(blank=True, verbose_name="error")),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                ("compression_asked_at", models.DateTimeField(blank=True, null=True, verbose_name="summary asked")),
                ("summarising_at", models.DateTimeField(blank=True, null=True, verbose_name="summarising since")),
                ("follows", models.UUIDField(blank=True, null=True, verbose_name="follows run")),
                ("process", models.CharField(blank=True, max_length=40, verbose_name="process")),
            ],
            options={
                "verbose_name": "run",
                "verbose_name_plural": "runs",
                "ordering": ["-started_at"],
                "indexes": [
                    models.Index(fields=["session", "started_at"], name="run_of_session"),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)), fields=["owner"], name="run_running_of_owner"
                    ),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)), fields=["heartbeat_at"], name="run_running"
                    ),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", False)), fields=["ended_at"], name="run_ended"
                    ),
                    models.Index(
                        condition=models.Q(("follows__isnull", False)), fields=["follows"], name="run_follows"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("outcome", "")),
                            models.Q(("ended_at__isnull", False), models.Q(("outcome", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="run_end_has_an_outcome",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Spending",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True, verbose_name="day")),
                ("messages", models.PositiveIntegerField(default=0, verbose_name="messages")),
                ("tokens", models.PositiveBigIntegerField(default=0, verbose_name="tokens")),
                ("cost", models.DecimalField(decimal_places=6, default=0, max_digits=14, verbose_name="cost")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="spendings",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "use",
                "verbose_name_plural": "use by day",
                "ordering": ["-day", "user"],
                "constraints": [models.UniqueConstraint(fields=("user", "day"), name="spending_one_row_per_day")],
            },
        ),
        migrations.RunPython(create_default_agent, migrations.RunPython.noop),
    ]
