"""The tables of the history and its search index: FTS5 on SQLite, GIN on PostgreSQL."""

import uuid

import django.db.models.deletion
import django.db.models.functions.comparison
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import history.fields

# The FTS5 table stores no text of its own and is unknown to Django; triggers follow each insert and delete of
# history_searchrow. Parley splits the text into words itself, so the tokenizer splits at spaces only.
SQLITE = [
    """
    CREATE VIRTUAL TABLE history_searchindex USING fts5(
        tokens, content='history_searchrow', content_rowid='id', columnsize=0, tokenize="ascii tokenchars ':'"
    )
    """,
    """
    CREATE TRIGGER history_searchrow_inserted AFTER INSERT ON history_searchrow BEGIN
        INSERT INTO history_searchindex(rowid, tokens) VALUES (new.id, new.tokens);
    END
    """,
    """
    CREATE TRIGGER history_searchrow_deleted AFTER DELETE ON history_searchrow BEGIN
        INSERT INTO history_searchindex(history_searchindex, rowid, tokens) VALUES ('delete', old.id, old.tokens);
    END
    """,
]
SQLITE_BACK = [
    "DROP TRIGGER history_searchrow_inserted",
    "DROP TRIGGER history_searchrow_deleted",
    "DROP TABLE history_searchindex",
]
POSTGRESQL = [
    # Without a list of pending entries: each search would read all of it, and a single append would pay for merging it.
    "CREATE INDEX history_searchrow_tokens ON history_searchrow USING gin (tokens) WITH (fastupdate = off)",
    # Room in each page for the next version of a count, so that an update touches no index.
    "ALTER TABLE history_daytally SET (fillfactor = 50)",
]
POSTGRESQL_BACK = ["DROP INDEX history_searchrow_tokens"]


def add_to_tables(apps, schema_editor):
    for statement in {"sqlite": SQLITE, "postgresql": POSTGRESQL}[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def remove_from_tables(apps, schema_editor):
    for statement in {"sqlite": SQLITE_BACK, "postgresql": POSTGRESQL_BACK}[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("seq", models.PositiveBigIntegerField(unique=True, verbose_name="number")),
                ("at", models.DateTimeField(verbose_name="time")),
                ("action", models.CharField(max_length=40, verbose_name="action")),
                ("actor", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="user id")),
                ("key", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="key id")),
                ("session", models.UUIDField(blank=True, db_index=True, null=True, verbose_name="session id")),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("details", models.TextField(blank=True, verbose_name="details")),
                ("seal", history.fields.HashField(max_length=32)),
            ],
            options={
                "verbose_name": "audit event",
                "verbose_name_plural": "audit events",
                "ordering": ["-seq"],
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Blob",
            fields=[
                ("sha256", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("data", models.BinaryField()),
                ("size", models.PositiveBigIntegerField(verbose_name="size")),
                ("media_type", models.CharField(default="text/plain", max_length=100, verbose_name="media type")),
                (
                    "created_at",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "blob",
                "verbose_name_plural": "blobs",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="StaleDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(verbose_name="day")),
            ],
        ),
        migrations.CreateModel(
            name="TokenCalibration",
            fields=[
                ("model", models.CharField(max_length=100, primary_key=True, serialize=False, verbose_name="model")),
                ("factor", models.FloatField(default=1.0, verbose_name="factor")),
                ("samples", models.PositiveIntegerField(default=0, verbose_name="samples")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="updated")),
            ],
            options={"verbose_name": "token calibration", "verbose_name_plural": "token calibrations"},
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, verbose_name="name")),
                ("prefix", models.CharField(max_length=16, unique=True, verbose_name="prefix")),
                ("secret_hash", history.fields.HashField(max_length=32)),
                ("scopes", models.JSONField(default=list, verbose_name="scopes")),
                ("owner_wide", models.BooleanField(default=False, verbose_name="sees all sessions of its owner")),
                (
                    "recording",
                    models.CharField(
                        choices=[
                            ("full", "everything"),
                            ("redacted", "everything, credentials removed"),
                            ("no_replies", "requests without the replies"),
                            ("metadata", "times and counts only"),
                            ("off", "nothing"),
                        ],
                        default="redacted",
                        max_length=12,
                        verbose_name="recording",
                    ),
                ),
                (
                    "requests_per_minute",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="requests per minute"),
                ),
                (
                    "tokens_per_minute",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="tokens per minute"),
                ),
                (
                    "concurrent_streams",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="streams at once"),
                ),
                (
                    "tokens_per_day",
                    models.PositiveBigIntegerField(blank=True, null=True, verbose_name="tokens per day"),
                ),
                (
                    "tokens_per_month",
                    models.PositiveBigIntegerField(blank=True, null=True, verbose_name="tokens per month"),
                ),
                (
                    "cost_per_day",
                    models.DecimalField(
                        blank=True, decimal_places=4, max_digits=12, null=True, verbose_name="cost per day"
                    ),
                ),
                (
                    "cost_per_month",
                    models.DecimalField(
                        blank=True, decimal_places=4, max_digits=12, null=True, verbose_name="cost per month"
                    ),
                ),
                ("keep_days", models.PositiveIntegerField(blank=True, null=True, verbose_name="days to keep")),
                (
                    "keep_body_days",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="days to keep texts"),
                ),
                (
                    "max_messages",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="messages per session"),
                ),
                ("max_sessions", models.PositiveIntegerField(blank=True, null=True, verbose_name="sessions")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                ("revoked_at", models.DateTimeField(blank=True, null=True, verbose_name="revoked")),
                ("last_used_at", models.DateTimeField(blank=True, null=True, verbose_name="last used")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="api_keys",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
            ],
            options={"verbose_name": "API key", "verbose_name_plural": "API keys"},
        ),
        migrations.CreateModel(
            name="Exchange",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("provider", models.CharField(blank=True, max_length=60, verbose_name="provider")),
                ("model", models.CharField(blank=True, max_length=100, verbose_name="model")),
                ("dialect", models.CharField(blank=True, max_length=40, verbose_name="dialect")),
                ("after", models.PositiveBigIntegerField(default=0, verbose_name="after entry")),
                ("history_version", models.PositiveBigIntegerField(default=0, verbose_name="history version")),
                ("renderer_version", models.CharField(blank=True, max_length=20, verbose_name="renderer version")),
                ("request_hash", models.CharField(blank=True, max_length=64, verbose_name="hash of the request")),
                ("inputs", models.JSONField(blank=True, default=dict, verbose_name="inputs")),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="started")),
                (
                    "heartbeat_at",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="last sign of life"),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                ("end_reason", models.CharField(blank=True, max_length=40, verbose_name="end reason")),
                ("stop_requested_at", models.DateTimeField(blank=True, null=True, verbose_name="stop asked")),
                ("partial", models.TextField(blank=True)),
                ("attempts", models.PositiveIntegerField(default=1, verbose_name="attempts")),
                ("status_code", models.PositiveIntegerField(blank=True, null=True, verbose_name="HTTP status")),
                ("error", models.TextField(blank=True, verbose_name="error")),
                ("estimated_tokens", models.PositiveIntegerField(default=0, verbose_name="tokens estimated")),
                ("usage", models.JSONField(blank=True, default=dict, verbose_name="usage")),
                ("cost", models.DecimalField(decimal_places=6, default=0, max_digits=14, verbose_name="cost")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                (
                    "api_key",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="exchanges",
                        to="history.apikey",
                        verbose_name="API key",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="exchanges",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                ("blobs", models.ManyToManyField(blank=True, related_name="exchanges", to="history.blob")),
            ],
            options={
                "verbose_name": "exchange",
                "verbose_name_plural": "exchanges",
                "ordering": ["-started_at", "-id"],
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="EarlierTry",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                (
                    "exchange",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="earlier_tries", to="history.exchange"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("seq", models.PositiveBigIntegerField(verbose_name="number")),
                ("parent_seq", models.PositiveBigIntegerField(verbose_name="after")),
                ("on_path", models.BooleanField(verbose_name="on the path to the head")),
                ("moved_head", models.BooleanField(verbose_name="became the head")),
                ("kind", models.CharField(max_length=40, verbose_name="kind")),
                ("is_state", models.BooleanField(default=False)),
                (
                    "role",
                    models.CharField(
                        choices=[("system", "system"), ("user", "user"), ("assistant", "assistant"), ("tool", "tool")],
                        max_length=10,
                        verbose_name="role",
                    ),
                ),
                ("content", models.TextField(blank=True, verbose_name="content")),
                ("content_chars", models.PositiveIntegerField(default=0, verbose_name="length")),
                ("body", models.TextField(null=True, verbose_name="body")),
                ("salt", history.fields.HashField(max_length=16, null=True)),
                ("dropped_at", models.DateTimeField(blank=True, null=True, verbose_name="texts dropped")),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("provider", models.CharField(blank=True, max_length=60, verbose_name="provider")),
                ("model", models.CharField(blank=True, max_length=100, verbose_name="model")),
                (
                    "status",
                    models.CharField(
                        choices=[("complete", "complete"), ("interrupted", "interrupted"), ("failed", "failed")],
                        default="complete",
                        max_length=12,
                        verbose_name="status",
                    ),
                ),
                ("end_reason", models.CharField(blank=True, max_length=40, verbose_name="end reason")),
                ("input_tokens", models.PositiveIntegerField(default=0, verbose_name="tokens read")),
                ("output_tokens", models.PositiveIntegerField(default=0, verbose_name="tokens written")),
                ("usage_source", models.CharField(blank=True, max_length=10, verbose_name="tokens counted by")),
                ("latency", models.FloatField(blank=True, null=True, verbose_name="time to first token")),
                ("duration", models.FloatField(blank=True, null=True, verbose_name="duration")),
                ("request_id", models.CharField(blank=True, max_length=200, verbose_name="request id")),
                ("is_internal", models.BooleanField(default=False, verbose_name="internal")),
                ("created_at", models.DateTimeField(verbose_name="time")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("fingerprint", history.fields.HashField(max_length=16)),
                ("digest", history.fields.HashField(max_length=32)),
                ("seal", history.fields.HashField(max_length=32)),
                ("blobs", models.ManyToManyField(blank=True, related_name="messages", to="history.blob")),
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "ordering": ["session", "seq"],
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="exchange",
            name="message",
            field=models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="exchange",
                to="history.message",
                verbose_name="message",
            ),
        ),
        migrations.CreateModel(
            name="SearchRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("start", models.PositiveIntegerField()),
                ("end", models.PositiveIntegerField()),
                ("tokens", history.fields.TokensField()),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="search_rows", to="history.message"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "source",
                    models.CharField(
                        choices=[("chat", "chat"), ("relay", "relay"), ("import", "import"), ("notebook", "notebook")],
                        default="chat",
                        max_length=10,
                        verbose_name="source",
                    ),
                ),
                ("client", models.CharField(blank=True, max_length=60, verbose_name="client")),
                ("recognised_by", models.CharField(blank=True, max_length=20, verbose_name="recognised by")),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("workspace", models.CharField(blank=True, max_length=255, verbose_name="workspace")),
                ("title", models.CharField(blank=True, max_length=200, verbose_name="title")),
                ("model", models.CharField(blank=True, max_length=100, verbose_name="model")),
                ("parent_call", models.CharField(blank=True, max_length=200, verbose_name="called by")),
                ("forked_at", models.PositiveBigIntegerField(default=0, verbose_name="forked after entry")),
                ("message_count", models.PositiveIntegerField(default=0, verbose_name="messages")),
                ("tool_call_count", models.PositiveIntegerField(default=0, verbose_name="tool calls")),
                ("error_count", models.PositiveIntegerField(default=0, verbose_name="errors")),
                ("input_tokens", models.PositiveBigIntegerField(default=0, verbose_name="tokens read")),
                ("output_tokens", models.PositiveBigIntegerField(default=0, verbose_name="tokens written")),
                ("cost", models.DecimalField(decimal_places=6, default=0, max_digits=14, verbose_name="cost")),
                ("version", models.PositiveBigIntegerField(default=0, verbose_name="version")),
                ("head", models.PositiveBigIntegerField(default=0, verbose_name="head")),
                ("last_seal", history.fields.HashField(default=bytes, max_length=32)),
                ("trimmed_through", models.PositiveBigIntegerField(default=0, verbose_name="trimmed through")),
                ("anchor_seal", history.fields.HashField(default=bytes, max_length=32)),
                ("head_fingerprint", history.fields.HashField(default=bytes, max_length=16)),
                ("head_has_open_calls", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                (
                    "last_activity_at",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="last activity"),
                ),
                ("stored_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="stored")),
                ("pinned_at", models.DateTimeField(blank=True, null=True, verbose_name="pinned")),
                ("archived_at", models.DateTimeField(blank=True, null=True, verbose_name="archived")),
                ("hidden_at", models.DateTimeField(blank=True, null=True, verbose_name="hidden")),
                ("hold", models.BooleanField(default=False, verbose_name="under hold")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="kept until")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                (
                    "api_key",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sessions",
                        to="history.apikey",
                        verbose_name="API key",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="chat_sessions",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                ("dropped_through", models.PositiveBigIntegerField(default=0)),
                ("changed_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="changed")),
                ("marked_at", models.DateTimeField(blank=True, null=True, verbose_name="marked")),
                ("given_title", history.fields.HashField(default=bytes, max_length=16)),
                ("begin_seal", history.fields.HashField(default=bytes, max_length=32)),
                ("readings_seen", models.PositiveBigIntegerField(default=0)),
                (
                    "forked_from",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="forks",
                        to="history.session",
                        verbose_name="forked from",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="children",
                        to="history.session",
                        verbose_name="opened by",
                    ),
                ),
                (
                    "continues",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="continued_by",
                        to="history.session",
                        verbose_name="continues",
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "ordering": ["-last_activity_at", "-id"],
                "permissions": [
                    ("read_session", "Can read what was said in other people's sessions"),
                    ("export_session", "Can export other people's sessions"),
                    ("hold_session", "Can hold sessions, and see hidden ones under hold"),
                ],
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="message",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="messages",
                to="history.session",
                verbose_name="session",
            ),
        ),
        migrations.AddField(
            model_name="exchange",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="exchanges",
                to="history.session",
                verbose_name="session",
            ),
        ),
        migrations.CreateModel(
            name="ShareLink",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("token_hash", history.fields.HashField(max_length=32, unique=True)),
                ("leaf", models.PositiveBigIntegerField(verbose_name="up to entry")),
                ("follows", models.BooleanField(default=False, verbose_name="goes on with the conversation")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                ("revoked_at", models.DateTimeField(blank=True, null=True, verbose_name="revoked")),
                ("views", models.PositiveIntegerField(default=0, verbose_name="times opened")),
                ("last_viewed_at", models.DateTimeField(blank=True, null=True, verbose_name="last opened")),
                ("noted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="share_links",
                        to="history.session",
                        verbose_name="session",
                    ),
                ),
                ("title", models.CharField(blank=True, max_length=200, verbose_name="title")),
            ],
            options={
                "verbose_name": "share link",
                "verbose_name_plural": "share links",
                "ordering": ["created_at", "pk"],
            },
        ),
        migrations.CreateModel(
            name="ToolCall",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("index", models.PositiveIntegerField(verbose_name="place")),
                ("call_id", models.CharField(blank=True, max_length=200, verbose_name="call id")),
                ("name", models.CharField(max_length=200, verbose_name="tool")),
                ("arguments", models.TextField(blank=True, verbose_name="arguments")),
                ("result", models.TextField(blank=True, verbose_name="result")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("success", "success"),
                            ("failed", "failed"),
                            ("skipped", "skipped"),
                            ("interrupted", "interrupted"),
                        ],
                        default="pending",
                        max_length=12,
                        verbose_name="status",
                    ),
                ),
                ("error", models.TextField(blank=True, verbose_name="error")),
                ("created_at", models.DateTimeField(verbose_name="asked")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("duration", models.FloatField(blank=True, null=True, verbose_name="duration")),
                (
                    "answered_by",
                    models.PositiveBigIntegerField(blank=True, null=True, verbose_name="answered by entry"),
                ),
                ("answer_index", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "message",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tool_calls",
                        to="history.message",
                        verbose_name="message",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tool_calls",
                        to="history.session",
                        verbose_name="session",
                    ),
                ),
            ],
            options={
                "verbose_name": "tool call",
                "verbose_name_plural": "tool calls",
                "ordering": ["message", "index"],
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="DayTally",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(verbose_name="day")),
                (
                    "source",
                    models.CharField(
                        choices=[("chat", "chat"), ("relay", "relay"), ("import", "import"), ("notebook", "notebook")],
                        max_length=10,
                        verbose_name="source",
                    ),
                ),
                ("agent", models.CharField(blank=True, max_length=100, verbose_name="agent")),
                ("model", models.CharField(blank=True, max_length=100, verbose_name="model")),
                ("sessions", models.IntegerField(default=0, verbose_name="sessions begun")),
                ("messages", models.IntegerField(default=0, verbose_name="messages")),
                ("answers", models.IntegerField(default=0, verbose_name="answers")),
                ("cut_short", models.IntegerField(default=0, verbose_name="answers cut short")),
                ("errors", models.IntegerField(default=0, verbose_name="errors")),
                ("input_tokens", models.BigIntegerField(default=0, verbose_name="tokens read")),
                ("output_tokens", models.BigIntegerField(default=0, verbose_name="tokens written")),
                ("cost", models.DecimalField(decimal_places=6, default=0, max_digits=16, verbose_name="cost")),
                ("tool_calls", models.IntegerField(default=0, verbose_name="tool calls")),
                ("tool_milliseconds", models.BigIntegerField(default=0, verbose_name="time of tools")),
                ("wait_0", models.IntegerField(default=0)),
                ("wait_1", models.IntegerField(default=0)),
                ("wait_2", models.IntegerField(default=0)),
                ("wait_3", models.IntegerField(default=0)),
                ("wait_4", models.IntegerField(default=0)),
                ("wait_5", models.IntegerField(default=0)),
                ("wait_6", models.IntegerField(default=0)),
                ("wait_7", models.IntegerField(default=0)),
                ("wait_8", models.IntegerField(default=0)),
                ("wait_9", models.IntegerField(default=0)),
                ("revision", models.BigIntegerField(default=0)),
                ("checked_revision", models.BigIntegerField(default=0)),
                (
                    "api_key",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="history.apikey",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "tally of a day",
                "verbose_name_plural": "tallies of days",
                "ordering": ["-day", "pk"],
                "indexes": [models.Index(fields=["owner", "day"], name="tally_of_owner")],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("day"),
                        models.F("owner"),
                        django.db.models.functions.comparison.Coalesce("api_key", 0),
                        models.F("source"),
                        models.F("agent"),
                        models.F("model"),
                        name="tally_one_row_per_key",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ImportJob",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("uploading", "being sent"),
                            ("waiting", "waiting"),
                            ("running", "running"),
                            ("done", "done"),
                            ("failed", "failed"),
                        ],
                        default="uploading",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                ("files", models.JSONField(default=list, verbose_name="files")),
                ("claim", models.UUIDField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                (
                    "heartbeat_at",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="last sign of life"),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                ("bytes_read", models.PositiveBigIntegerField(default=0, verbose_name="read")),
                ("counts", models.JSONField(default=dict, verbose_name="counts")),
                ("items", models.JSONField(default=list, verbose_name="report")),
                ("error", models.TextField(blank=True, verbose_name="error")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="import_jobs",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "api_key",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="history.apikey",
                    ),
                ),
            ],
            options={
                "verbose_name": "import",
                "verbose_name_plural": "imports",
                "ordering": ["-created_at"],
                "indexes": [
                    models.Index(fields=["owner", "-created_at"], name="import_of_owner"),
                    models.Index(
                        condition=models.Q(("state", "waiting")), fields=["created_at"], name="import_waiting"
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="session", index=models.Index(fields=["-last_activity_at", "-id"], name="session_newest")
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["owner", "-last_activity_at", "-id"], name="session_newest_of_owner"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["api_key", "-last_activity_at", "-id"], name="session_newest_of_key"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["source", "-last_activity_at", "-id"], name="session_newest_of_source"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("pinned_at__isnull", False)),
                fields=["owner", "-last_activity_at", "-id"],
                name="session_pinned",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", False)),
                fields=["owner", "-last_activity_at", "-id"],
                name="session_archived",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False)), fields=["expires_at"], name="session_expiry"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("hidden_at__isnull", False)), fields=["hidden_at"], name="session_trash"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("hold", True)), fields=["-last_activity_at", "-id"], name="session_held"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("hidden_at__isnull", False)), fields=["owner", "hidden_at"], name="session_deleted"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["agent", "workspace", "-last_activity_at", "-id"], name="session_of_workspace"),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(("head__lte", models.F("version"))), name="session_head_exists"
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(("trimmed_through__lte", models.F("version"))), name="session_trim_in_range"
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(("dropped_through__lte", models.F("version"))), name="session_drop_in_range"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("on_path", True)), fields=["session", "-seq"], name="message_on_path"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("is_state", True)), fields=["session", "-seq"], name="message_state"
            ),
        ),
        migrations.AddIndex(
            model_name="message", index=models.Index(fields=["session", "parent_seq"], name="message_children")
        ),
        migrations.AddIndex(
            model_name="message", index=models.Index(fields=["fingerprint"], name="message_fingerprint")
        ),
        migrations.AddIndex(model_name="message", index=models.Index(fields=["created_at"], name="message_by_time")),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.UniqueConstraint(fields=("session", "seq"), name="message_one_entry_per_seq"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(condition=models.Q(("seq__gte", 1)), name="message_seq_from_one"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(("parent_seq__lt", models.F("seq"))), name="message_parent_is_older"
            ),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("body__isnull", False), ("dropped_at__isnull", True)),
                    models.Q(("body__isnull", True), ("dropped_at__isnull", False), ("salt__isnull", True)),
                    _connector="OR",
                ),
                name="message_body_or_dropped",
            ),
        ),
        migrations.AddIndex(
            model_name="exchange",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True)), fields=["heartbeat_at"], name="exchange_running"
            ),
        ),
        migrations.AddIndex(
            model_name="exchange", index=models.Index(fields=["session", "started_at"], name="exchange_of_session")
        ),
        migrations.AddIndex(
            model_name="exchange", index=models.Index(fields=["-started_at", "-id"], name="exchange_newest")
        ),
        migrations.AddIndex(
            model_name="exchange",
            index=models.Index(
                condition=models.Q(("session__isnull", True)), fields=["session", "ended_at"], name="exchange_loose"
            ),
        ),
        migrations.AddConstraint(
            model_name="exchange",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("end_reason", ""), ("ended_at__isnull", True)),
                    models.Q(("ended_at__isnull", False), models.Q(("end_reason", ""), _negated=True)),
                    _connector="OR",
                ),
                name="exchange_end_has_a_reason",
            ),
        ),
        migrations.AddConstraint(
            model_name="toolcall",
            constraint=models.UniqueConstraint(fields=("message", "index"), name="toolcall_one_row_per_call"),
        ),
        migrations.AddConstraint(
            model_name="toolcall",
            constraint=models.UniqueConstraint(
                fields=("session", "answered_by", "answer_index"), name="toolcall_one_call_per_result"
            ),
        ),
        migrations.AddConstraint(
            model_name="toolcall",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("answer_index__isnull", True),
                        ("answered_by__isnull", True),
                        ("status__in", ["pending", "interrupted"]),
                    ),
                    models.Q(
                        ("answer_index__isnull", False),
                        ("answered_by__isnull", False),
                        models.Q(("status", "pending"), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="toolcall_outcome_has_an_entry",
            ),
        ),
        migrations.RunPython(add_to_tables, remove_from_tables),
    ]
