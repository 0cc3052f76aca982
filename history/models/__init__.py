"""The record: what is stored, and what the database itself refuses.

An entry of the history is one `Message` row, immutable once written. Rows of one session are numbered by `seq` and
form a tree through `parent_seq`; because a parent is named by its number *within the session*, a parent in another
session cannot even be written down. Everything else here is a projection that can be rebuilt from the entries
(counters, `head`, `on_path`, `ToolCall`, `SearchRow`) or describes who talked, by which key and through which call.

Only `recorder` and `exchanges` write these tables (and `sharing` its links), only `retention` removes from them, and
`selectors` and `search` read them on behalf of a viewer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from history.fields import HashField, TokensField
from history.models import seals
from history.models.append_only import AppendOnly, Kept, KeptQuerySet, Undeletable, guard_links


class ApiKey(models.Model):
    """Who may use the relay and the REST API. The key itself is shown once; only its hash is kept."""

    class Recording(models.TextChoices):
        FULL = "full", _("everything")
        REDACTED = "redacted", _("everything, credentials removed")
        NO_REPLIES = "no_replies", _("requests without the replies")
        METADATA = "metadata", _("times and counts only")
        OFF = "off", _("nothing")

    name = models.CharField(_("name"), max_length=100)
    prefix = models.CharField(_("prefix"), max_length=16, unique=True)
    secret_hash = HashField(max_length=32)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.PROTECT, related_name="api_keys"
    )
    scopes = models.JSONField(_("scopes"), default=list)
    owner_wide = models.BooleanField(_("sees all sessions of its owner"), default=False)
    recording = models.CharField(_("recording"), max_length=12, choices=Recording.choices, default=Recording.REDACTED)
    requests_per_minute = models.PositiveIntegerField(_("requests per minute"), null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(_("tokens per minute"), null=True, blank=True)
    concurrent_streams = models.PositiveIntegerField(_("streams at once"), null=True, blank=True)
    tokens_per_day = models.PositiveBigIntegerField(_("tokens per day"), null=True, blank=True)
    tokens_per_month = models.PositiveBigIntegerField(_("tokens per month"), null=True, blank=True)
    cost_per_day = models.DecimalField(_("cost per day"), max_digits=12, decimal_places=4, null=True, blank=True)
    cost_per_month = models.DecimalField(_("cost per month"), max_digits=12, decimal_places=4, null=True, blank=True)
    # Retention of this key's sessions; empty: the rule of the source applies.
    keep_days = models.PositiveIntegerField(_("days to keep"), null=True, blank=True)
    keep_body_days = models.PositiveIntegerField(_("days to keep texts"), null=True, blank=True)
    max_messages = models.PositiveIntegerField(_("messages per session"), null=True, blank=True)
    max_sessions = models.PositiveIntegerField(_("sessions"), null=True, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


# Two moments in `Session.hidden_at` that no clock shows any more. Such a session is served to nobody, takes no entry,
# and cannot be brought back or held. The removal has begun, and any purge finishes it:
BEYOND_RECALL = datetime(1970, 1, 1, tzinfo=UTC)
# A fork that is still being copied; a purge removes it if nobody goes on with that:
IN_THE_MAKING = datetime(1970, 1, 2, tzinfo=UTC)


class TitlePolicy(Protocol):
    """Which titles a viewer may see (`history.access.titles`)."""

    def hide(self, sessions: Sequence[Session]) -> None: ...

    def visible(self) -> Q: ...


def neutral_name(moment: datetime, *, client: str = "") -> str:
    """What a session is called where its title must not be shown."""
    day = date_format(timezone.localtime(moment), "SHORT_DATETIME_FORMAT")
    if client:
        return gettext("Session of %(date)s (%(client)s)") % {"date": day, "client": client}
    return gettext("Session of %(date)s") % {"date": day}


class SessionQuerySet(KeptQuerySet["Session"]):
    """Sessions as a viewer may see them: titles that the rule hides are replaced as the rows are read."""

    _title_rule: TitlePolicy | None = None

    def with_titles(self, rule: TitlePolicy) -> SessionQuerySet:
        rows = self.all()
        rows._title_rule = rule
        return rows

    def whose_title_is_visible(self) -> SessionQuerySet:
        return self.filter(self._title_rule.visible()) if self._title_rule else self

    def _clone(self) -> Self:
        rows = super()._clone()  # type: ignore[misc]
        rows._title_rule = self._title_rule
        return rows  # type: ignore[no-any-return]

    def _fetch_all(self) -> None:
        is_fresh = self._result_cache is None
        super()._fetch_all()
        if is_fresh and self._title_rule is not None and self._result_cache:
            self._title_rule.hide([row for row in self._result_cache if isinstance(row, Session)])

    def iterator(self, chunk_size: int | None = None) -> Iterator[Session]:
        rows = super().iterator(chunk_size=chunk_size)
        while page := list(islice(rows, 500)):
            if self._title_rule is not None:
                self._title_rule.hide([row for row in page if isinstance(row, Session)])
            yield from page


class Session(Undeletable):
    """One conversation. `version` counts its entries, `head` is the entry that the next one follows."""

    class Source(models.TextChoices):
        CHAT = "chat", _("chat")
        RELAY = "relay", _("relay")
        IMPORT = "import", _("import")
        NOTEBOOK = "notebook", _("notebook")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("owner"),
        on_delete=models.PROTECT,
        related_name="chat_sessions",
        db_index=False,
    )
    api_key = models.ForeignKey(
        ApiKey,
        verbose_name=_("API key"),
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="sessions",
        db_index=False,
    )
    source = models.CharField(_("source"), max_length=10, choices=Source.choices, default=Source.CHAT)
    client = models.CharField(_("client"), max_length=60, blank=True)
    recognised_by = models.CharField(_("recognised by"), max_length=20, blank=True)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    workspace = models.CharField(_("workspace"), max_length=255, blank=True)
    title = models.CharField(_("title"), max_length=200, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    parent = models.ForeignKey(
        "self", verbose_name=_("opened by"), on_delete=models.SET_NULL, null=True, blank=True, related_name="children"
    )
    parent_call = models.CharField(_("called by"), max_length=200, blank=True)
    forked_from = models.ForeignKey(
        "self", verbose_name=_("forked from"), on_delete=models.SET_NULL, null=True, blank=True, related_name="forks"
    )
    forked_at = models.PositiveBigIntegerField(_("forked after entry"), default=0)
    # Staff say so: the two are read as one transcript, and no row moves.
    continues = models.ForeignKey(
        "self",
        verbose_name=_("continues"),
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="continued_by",
    )

    message_count = models.PositiveIntegerField(_("messages"), default=0)
    tool_call_count = models.PositiveIntegerField(_("tool calls"), default=0)
    error_count = models.PositiveIntegerField(_("errors"), default=0)
    input_tokens = models.PositiveBigIntegerField(_("tokens read"), default=0)
    output_tokens = models.PositiveBigIntegerField(_("tokens written"), default=0)
    cost = models.DecimalField(_("cost"), max_digits=14, decimal_places=6, default=0)

    version = models.PositiveBigIntegerField(_("version"), default=0)
    head = models.PositiveBigIntegerField(_("head"), default=0)
    last_seal = HashField(max_length=32, default=bytes)
    trimmed_through = models.PositiveBigIntegerField(_("trimmed through"), default=0)
    anchor_seal = HashField(max_length=32, default=bytes)
    # The texts up to here were dropped by policy, but for instructions, tools and notebooks that held on.
    dropped_through = models.PositiveBigIntegerField(default=0)
    # The title that it began with (`seals.title_mark_of`); empty where the title is taken from its entries.
    given_title = HashField(max_length=16, default=bytes)
    # Over owner, key, source and given title: `verification` compares.
    begin_seal = HashField(max_length=32, default=bytes)
    # What the next append needs to know of the head, so that it does not have to read it.
    head_fingerprint = HashField(max_length=16, default=bytes)
    head_has_open_calls = models.BooleanField(default=False)

    created_at = models.DateTimeField(_("created"), default=timezone.now)
    last_activity_at = models.DateTimeField(_("last activity"), default=timezone.now)
    # When we last stored something, by our own clock; an import's activity may lie years back.
    stored_at = models.DateTimeField(_("stored"), default=timezone.now)
    # When anything about it last changed, by our own clock: what an export that goes on from another one looks at.
    changed_at = models.DateTimeField(_("changed"), default=timezone.now)
    # When its owner last gave it a title, an agent, a pin or a place in the archive: of two copies, whose are newer.
    marked_at = models.DateTimeField(_("marked"), null=True, blank=True)
    pinned_at = models.DateTimeField(_("pinned"), null=True, blank=True)
    archived_at = models.DateTimeField(_("archived"), null=True, blank=True)
    hidden_at = models.DateTimeField(_("hidden"), null=True, blank=True)
    hold = models.BooleanField(_("under hold"), default=False)
    # The newest audit event of a reading by others that its owner has seen (`who_read.unseen_readers`).
    readings_seen = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField(_("kept until"), null=True, blank=True)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    objects = models.Manager.from_queryset(SessionQuerySet)()

    class Meta(Undeletable.Meta):
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        # Beside `view_session`, which shows no text, and `delete_session`: history.access.permissions has the table.
        permissions = [
            ("read_session", _("Can read what was said in other people's sessions")),
            ("export_session", _("Can export other people's sessions")),
            ("hold_session", _("Can hold sessions, and see hidden ones under hold")),
        ]
        ordering = ["-last_activity_at", "-id"]
        indexes = [
            models.Index(fields=["-last_activity_at", "-id"], name="session_newest"),
            models.Index(fields=["owner", "-last_activity_at", "-id"], name="session_newest_of_owner"),
            models.Index(fields=["api_key", "-last_activity_at", "-id"], name="session_newest_of_key"),
            models.Index(fields=["source", "-last_activity_at", "-id"], name="session_newest_of_source"),
            models.Index(
                fields=["owner", "-last_activity_at", "-id"],
                name="session_pinned",
                condition=Q(pinned_at__isnull=False),
            ),
            models.Index(
                fields=["owner", "-last_activity_at", "-id"],
                name="session_archived",
                condition=Q(archived_at__isnull=False),
            ),
            models.Index(fields=["expires_at"], name="session_expiry", condition=Q(expires_at__isnull=False)),
            models.Index(fields=["hidden_at"], name="session_trash", condition=Q(hidden_at__isnull=False)),
            models.Index(fields=["-last_activity_at", "-id"], name="session_held", condition=Q(hold=True)),
            models.Index(fields=["owner", "hidden_at"], name="session_deleted", condition=Q(hidden_at__isnull=False)),
            # With the order of lists: without it SQLite would rather walk all sessions of the owner in that order.
            models.Index(fields=["agent", "workspace", "-last_activity_at", "-id"], name="session_of_workspace"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(head__lte=F("version")), name="session_head_exists"),
            models.CheckConstraint(condition=Q(trimmed_through__lte=F("version")), name="session_trim_in_range"),
            models.CheckConstraint(condition=Q(dropped_through__lte=F("version")), name="session_drop_in_range"),
        ]

    def __str__(self) -> str:
        """Never the title, which is text: this name is shown wherever a session is referred to."""
        return neutral_name(self.created_at, client=self.client)

    def hide_title(self) -> None:
        self._hidden_title: str | None = self.__dict__.get("title")
        self.title = str(self)

    @property
    def is_title_hidden(self) -> bool:
        return "_hidden_title" in self.__dict__

    def reveal_title(self) -> None:
        """To a viewer who has opened it since it was read."""
        if not self.is_title_hidden:
            return
        title = self.__dict__.pop("_hidden_title")
        if title is None:
            self.refresh_from_db(fields=["title"])
        else:
            self.title = title

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self._state.adding:
            self.seal_beginning(given_title=self.title)
        super().save(*args, **kwargs)

    def seal_beginning(self, *, given_title: str) -> None:
        self.given_title = seals.title_mark_of(self.pk, given_title)
        self.begin_seal = self.expected_begin_seal()

    def expected_begin_seal(self) -> bytes:
        return seals.begin_seal_of(
            self.pk,
            owner_id=self.owner_id,
            api_key_id=self.api_key_id,
            source=self.source,
            given_title=bytes(self.given_title),
        )

    def get_absolute_url(self) -> str:
        return reverse("session", args=[self.pk])

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Message(AppendOnly):
    """One entry of a session's history: written once, then only read, or dropped by policy as a whole."""

    class Role(models.TextChoices):
        SYSTEM = "system", _("system")
        USER = "user", _("user")
        ASSISTANT = "assistant", _("assistant")
        TOOL = "tool", _("tool")

    class Status(models.TextChoices):
        COMPLETE = "complete", _("complete")
        INTERRUPTED = "interrupted", _("interrupted")
        FAILED = "failed", _("failed")

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="messages", db_index=False
    )
    seq = models.PositiveBigIntegerField(_("number"))
    parent_seq = models.PositiveBigIntegerField(_("after"))
    on_path = models.BooleanField(_("on the path to the head"))
    moved_head = models.BooleanField(_("became the head"))
    kind = models.CharField(_("kind"), max_length=40)
    # Says what holds from here on (entries.STATE): few per session, found without reading the conversation.
    is_state = models.BooleanField(default=False)
    role = models.CharField(_("role"), max_length=10, choices=Role.choices)
    # The text for people, cut at recorder.CONTENT_CHARS; content_chars is its whole length.
    content = models.TextField(_("content"), blank=True)
    content_chars = models.PositiveIntegerField(_("length"), default=0)
    # The entry as JSON (history.entries), long texts moved to blobs. Null once dropped by policy, and so is the salt.
    body = models.TextField(_("body"), null=True)  # noqa: DJ001 - an empty body is not a dropped one
    salt = HashField(max_length=16, null=True)
    dropped_at = models.DateTimeField(_("texts dropped"), null=True, blank=True)

    agent = models.CharField(_("agent"), max_length=100, blank=True)
    provider = models.CharField(_("provider"), max_length=60, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    status = models.CharField(_("status"), max_length=12, choices=Status.choices, default=Status.COMPLETE)
    end_reason = models.CharField(_("end reason"), max_length=40, blank=True)
    input_tokens = models.PositiveIntegerField(_("tokens read"), default=0)
    output_tokens = models.PositiveIntegerField(_("tokens written"), default=0)
    usage_source = models.CharField(_("tokens counted by"), max_length=10, blank=True)
    latency = models.FloatField(_("time to first token"), null=True, blank=True)
    duration = models.FloatField(_("duration"), null=True, blank=True)
    request_id = models.CharField(_("request id"), max_length=200, blank=True)
    is_internal = models.BooleanField(_("internal"), default=False)
    created_at = models.DateTimeField(_("time"))
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    fingerprint = HashField(max_length=16)
    digest = HashField(max_length=32)
    seal = HashField(max_length=32)
    blobs: models.ManyToManyField[Blob, Any] = models.ManyToManyField("Blob", related_name="messages", blank=True)

    class Meta(AppendOnly.Meta):
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["session", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="message_one_entry_per_seq"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="message_seq_from_one"),
            models.CheckConstraint(condition=Q(parent_seq__lt=F("seq")), name="message_parent_is_older"),
            models.CheckConstraint(
                condition=Q(body__isnull=False, dropped_at__isnull=True)
                | Q(body__isnull=True, salt__isnull=True, dropped_at__isnull=False),
                name="message_body_or_dropped",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "-seq"], name="message_on_path", condition=Q(on_path=True)),
            models.Index(fields=["session", "-seq"], name="message_state", condition=Q(is_state=True)),
            models.Index(fields=["session", "parent_seq"], name="message_children"),
            models.Index(fields=["fingerprint"], name="message_fingerprint"),
            models.Index(fields=["created_at"], name="message_by_time"),
        ]

    def __str__(self) -> str:
        return f"#{self.seq} {self.kind}"


class ToolCall(AppendOnly):
    """One call and its outcome, for people, admin and REST: taken from the results that answer it on the path."""

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        SUCCESS = "success", _("success")
        FAILED = "failed", _("failed")
        SKIPPED = "skipped", _("skipped")
        INTERRUPTED = "interrupted", _("interrupted")

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="tool_calls", db_index=False
    )
    message = models.ForeignKey(
        Message, verbose_name=_("message"), on_delete=models.CASCADE, related_name="tool_calls", db_index=False
    )
    index = models.PositiveIntegerField(_("place"))
    call_id = models.CharField(_("call id"), max_length=200, blank=True)
    name = models.CharField(_("tool"), max_length=200)
    arguments = models.TextField(_("arguments"), blank=True)
    result = models.TextField(_("result"), blank=True)
    status = models.CharField(_("status"), max_length=12, choices=Status.choices, default=Status.PENDING)
    error = models.TextField(_("error"), blank=True)
    created_at = models.DateTimeField(_("asked"))
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    duration = models.FloatField(_("duration"), null=True, blank=True)
    # The entry of the same session that holds the outcome, and the place in it.
    answered_by = models.PositiveBigIntegerField(_("answered by entry"), null=True, blank=True)
    answer_index = models.PositiveIntegerField(null=True, blank=True)

    class Meta(AppendOnly.Meta):
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        ordering = ["message", "index"]
        constraints = [
            models.UniqueConstraint(fields=["message", "index"], name="toolcall_one_row_per_call"),
            models.UniqueConstraint(
                fields=["session", "answered_by", "answer_index"], name="toolcall_one_call_per_result"
            ),
            models.CheckConstraint(
                condition=Q(answered_by__isnull=True, answer_index__isnull=True, status__in=["pending", "interrupted"])
                | (Q(answered_by__isnull=False, answer_index__isnull=False) & ~Q(status="pending")),
                name="toolcall_outcome_has_an_entry",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.status})"


class Exchange(Kept):
    """One call to a model: opened before anything is sent, ended exactly once, whatever the end was."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(
        Session,
        verbose_name=_("session"),
        on_delete=models.CASCADE,
        null=True,
        related_name="exchanges",
        db_index=False,
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.PROTECT, related_name="exchanges"
    )
    api_key = models.ForeignKey(
        ApiKey, verbose_name=_("API key"), on_delete=models.PROTECT, null=True, blank=True, related_name="exchanges"
    )
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    provider = models.CharField(_("provider"), max_length=60, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    dialect = models.CharField(_("dialect"), max_length=40, blank=True)
    # The entry that the answer will follow, and everything that the request was made from.
    after = models.PositiveBigIntegerField(_("after entry"), default=0)
    history_version = models.PositiveBigIntegerField(_("history version"), default=0)
    renderer_version = models.CharField(_("renderer version"), max_length=20, blank=True)
    request_hash = models.CharField(_("hash of the request"), max_length=64, blank=True)
    inputs = models.JSONField(_("inputs"), default=dict, blank=True)
    blobs: models.ManyToManyField[Blob, Any] = models.ManyToManyField("Blob", related_name="exchanges", blank=True)

    started_at = models.DateTimeField(_("started"), default=timezone.now)
    heartbeat_at = models.DateTimeField(_("last sign of life"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    end_reason = models.CharField(_("end reason"), max_length=40, blank=True)
    stop_requested_at = models.DateTimeField(_("stop asked"), null=True, blank=True)
    # The answer so far, as the JSON of a ModelOutput: a scratch pad outside the ledger, emptied at the end.
    partial = models.TextField(blank=True)
    message = models.OneToOneField(
        Message, verbose_name=_("message"), on_delete=models.SET_NULL, null=True, blank=True, related_name="exchange"
    )
    attempts = models.PositiveIntegerField(_("attempts"), default=1)
    status_code = models.PositiveIntegerField(_("HTTP status"), null=True, blank=True)
    error = models.TextField(_("error"), blank=True)
    # Our estimate before any calibration, to learn from the vendor's count.
    estimated_tokens = models.PositiveIntegerField(_("tokens estimated"), default=0)
    usage = models.JSONField(_("usage"), default=dict, blank=True)
    cost = models.DecimalField(_("cost"), max_digits=14, decimal_places=6, default=0)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    class Meta(Kept.Meta):
        verbose_name = _("exchange")
        verbose_name_plural = _("exchanges")
        ordering = ["-started_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, end_reason="") | (Q(ended_at__isnull=False) & ~Q(end_reason="")),
                name="exchange_end_has_a_reason",
            )
        ]
        indexes = [
            models.Index(fields=["heartbeat_at"], name="exchange_running", condition=Q(ended_at__isnull=True)),
            models.Index(fields=["session", "started_at"], name="exchange_of_session"),
            models.Index(fields=["-started_at", "-id"], name="exchange_newest"),
            # The session is in it, always null, because SQLite would else rather walk all calls without one.
            models.Index(fields=["session", "ended_at"], name="exchange_loose", condition=Q(session__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.model or '–'}, {timezone.localtime(self.started_at):%Y-%m-%d %H:%M:%S}"


class EarlierTry(models.Model):
    """The id of a call that its client made again: it leads to the exchange that all tries together are."""

    id = models.UUIDField(primary_key=True, editable=False)
    exchange = models.ForeignKey(Exchange, on_delete=models.CASCADE, related_name="earlier_tries")

    def __str__(self) -> str:
        return str(self.pk)


class Blob(Kept):
    """A long payload under the hash of its bytes, stored once however often it is referred to."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    data = models.BinaryField()
    size = models.PositiveBigIntegerField(_("size"))
    media_type = models.CharField(_("media type"), max_length=100, default="text/plain")
    created_at = models.DateTimeField(_("created"), default=timezone.now, db_index=True)

    class Meta(Kept.Meta):
        verbose_name = _("blob")
        verbose_name_plural = _("blobs")

    def __str__(self) -> str:
        return f"{self.sha256[:12]} ({self.size})"


class SearchRow(models.Model):
    """A stretch of a message's searchable text, as tokens. `search` writes and reads it."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="search_rows")
    # Where the stretch lies in the searchable text of the entry.
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    tokens = TokensField()

    def __str__(self) -> str:
        return f"{self.message_id}: {self.start}–{self.end}"


class AuditEvent(AppendOnly):
    """Who read, exported, held or removed what, and why. A chain of its own, of ids instead of names."""

    id = models.BigAutoField(primary_key=True)
    seq = models.PositiveBigIntegerField(_("number"), unique=True)
    at = models.DateTimeField(_("time"))
    action = models.CharField(_("action"), max_length=40)
    actor = models.PositiveBigIntegerField(_("user id"), null=True, blank=True)
    key = models.PositiveBigIntegerField(_("key id"), null=True, blank=True)
    session = models.UUIDField(_("session id"), null=True, blank=True, db_index=True)
    reason = models.TextField(_("reason"), blank=True)
    details = models.TextField(_("details"), blank=True)
    seal = HashField(max_length=32)

    class Meta(AppendOnly.Meta):
        verbose_name = _("audit event")
        verbose_name_plural = _("audit events")
        ordering = ["-seq"]

    def __str__(self) -> str:
        return f"#{self.seq} {self.action}"


class ShareLink(models.Model):
    """A way to read one session without an account. The link itself is not here, only the hash by which it is found."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="share_links"
    )
    token_hash = HashField(max_length=32, unique=True)
    # The entry up to which it shows; one that follows shows whatever the path is when it is read.
    leaf = models.PositiveBigIntegerField(_("up to entry"))
    follows = models.BooleanField(_("goes on with the conversation"), default=False)
    # The session's title when the link was made; one that follows shows the title of the session.
    title = models.CharField(_("title"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    views = models.PositiveIntegerField(_("times opened"), default=0)
    last_viewed_at = models.DateTimeField(_("last opened"), null=True, blank=True)
    # When a view was last told to the audit chain, which takes one an hour.
    noted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("share link")
        verbose_name_plural = _("share links")
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return f"{self.session_id} {self.created_at:%Y-%m-%d %H:%M}"


class TokenCalibration(models.Model):
    """How a vendor's own count relates to our estimate, per model: the factor to multiply estimates by."""

    model = models.CharField(_("model"), max_length=100, primary_key=True)
    factor = models.FloatField(_("factor"), default=1.0)
    samples = models.PositiveIntegerField(_("samples"), default=0)
    updated_at = models.DateTimeField(_("updated"), auto_now=True)

    class Meta:
        verbose_name = _("token calibration")
        verbose_name_plural = _("token calibrations")

    def __str__(self) -> str:
        return f"{self.model} × {self.factor:.3f}"


class DayTally(models.Model):
    """Counts of one owner, key, source, agent and model on one day (UTC), written by `tallies`.

    The numbers have no lower bound: a difference that is added may be negative.
    """

    day = models.DateField(_("day"))
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    api_key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    source = models.CharField(_("source"), max_length=10, choices=Session.Source.choices)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)

    sessions = models.IntegerField(_("sessions begun"), default=0)
    messages = models.IntegerField(_("messages"), default=0)
    answers = models.IntegerField(_("answers"), default=0)
    cut_short = models.IntegerField(_("answers cut short"), default=0)
    errors = models.IntegerField(_("errors"), default=0)
    input_tokens = models.BigIntegerField(_("tokens read"), default=0)
    output_tokens = models.BigIntegerField(_("tokens written"), default=0)
    cost = models.DecimalField(_("cost"), max_digits=16, decimal_places=6, default=0)
    tool_calls = models.IntegerField(_("tool calls"), default=0)
    tool_milliseconds = models.BigIntegerField(_("time of tools"), default=0)
    # Answers by the time to their first token, in the classes of `tallies.WAITS`.
    wait_0 = models.IntegerField(default=0)
    wait_1 = models.IntegerField(default=0)
    wait_2 = models.IntegerField(default=0)
    wait_3 = models.IntegerField(default=0)
    wait_4 = models.IntegerField(default=0)
    wait_5 = models.IntegerField(default=0)
    wait_6 = models.IntegerField(default=0)
    wait_7 = models.IntegerField(default=0)
    wait_8 = models.IntegerField(default=0)
    wait_9 = models.IntegerField(default=0)

    # Every change adds one; `tallies.check` notes up to which it has compared the counts with the record.
    revision = models.BigIntegerField(default=0)
    checked_revision = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = _("tally of a day")
        verbose_name_plural = _("tallies of days")
        ordering = ["-day", "pk"]
        indexes = [models.Index(fields=["owner", "day"], name="tally_of_owner")]
        constraints = [
            # A key that is null would be unlike itself, and the upsert would add a row each time.
            models.UniqueConstraint(
                "day", "owner", Coalesce("api_key", 0), "source", "agent", "model", name="tally_one_row_per_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.model}"


class StaleDay(models.Model):
    """A day whose counts have to be made anew, because they were not written with the record."""

    day = models.DateField(_("day"))

    def __str__(self) -> str:
        return str(self.day)


class ImportJob(models.Model):
    """Files that somebody sent to be imported, and what became of them. The files lie in the data directory."""

    class State(models.TextChoices):
        UPLOADING = "uploading", _("being sent")
        WAITING = "waiting", _("waiting")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="import_jobs")
    # The key that sent it, if it was one.
    api_key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.UPLOADING)
    # [{"name": …, "size": …}, …] in the order in which they were sent.
    files = models.JSONField(_("files"), default=list)
    # Who runs it; whoever takes it over has another name, and the words of the one before count no more.
    claim = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    heartbeat_at = models.DateTimeField(_("last sign of life"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    bytes_read = models.PositiveBigIntegerField(_("read"), default=0)
    counts = models.JSONField(_("counts"), default=dict)
    # The items of the report, or the first of very many.
    items = models.JSONField(_("report"), default=list)
    error = models.TextField(_("error"), blank=True)

    class Meta:
        verbose_name = _("import")
        verbose_name_plural = _("imports")
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["owner", "-created_at"], name="import_of_owner"),
            models.Index(fields=["created_at"], name="import_waiting", condition=Q(state="waiting")),
        ]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M} {self.state}"


guard_links(Message.blobs.through)
guard_links(Exchange.blobs.through)
