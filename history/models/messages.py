"""Messages (the entries of a session), their tool calls, blobs and search rows."""

from typing import Any, Self
from uuid import UUID

from django.db import models
from django.db.models import F, Q, UniqueConstraint
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.entries import MESSAGES, NEVER_PARENTS
from history.fields import HashField, TokensField
from history.models.append_only import AppendOnlyModel, AppendOnlyQuerySet, UndeletableModel, guard_links
from history.models.sessions import Session


class MessageQuerySet(AppendOnlyQuerySet["Message"]):
    """Messages of one session, by its row or its id."""

    def of(self, session: Session | UUID) -> Self:
        return self.filter(session=session)

    def at(self, session: Session | UUID | None, seq: int) -> Self:
        """The entry with this number, at most one row."""
        return self.filter(session=session, seq=seq)

    def on_path(self, session: Session | UUID) -> Self:
        """The entries from the beginning of the session to its head."""
        return self.filter(session=session, on_path=True)

    def in_order(self, session: Session) -> Self:
        """All entries in the order of writing, up to the version at which the session row was read."""
        return self.filter(session=session, seq__lte=session.version).order_by("seq")

    def possible_parents(self) -> Self:
        """Without the kinds that no entry follows (`entries.LEAVES`)."""
        return self.exclude(kind__in=NEVER_PARENTS)

    def only_messages(self) -> Self:
        """The entries that are shown as messages, as `Message.is_message`."""
        return self.filter(kind__in=MESSAGES, is_internal=False)


class Message(AppendOnlyModel):
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
    session = models.ForeignKey(Session, models.CASCADE, "messages", verbose_name=_("session"), db_index=False)
    seq = models.PositiveBigIntegerField(_("number"))
    parent_seq = models.PositiveBigIntegerField(_("after"))
    on_path = models.BooleanField(_("on the path to the head"))
    moved_head = models.BooleanField(_("set as head"))
    kind = models.CharField(_("kind"), max_length=40)
    # A state entry (`entries.STATE`) applies from here on. There are few per session, and this flag finds them.
    is_state = models.BooleanField(default=False)
    role = models.CharField(_("role"), max_length=10, choices=Role.choices)
    # The text for people, cut at recorder.CONTENT_CHARS; content_chars is its full length.
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
    usage_source = models.CharField(_("token count source"), max_length=10, blank=True)
    latency = models.FloatField(_("time to first token"), null=True, blank=True)
    duration = models.FloatField(_("duration"), null=True, blank=True)
    request_id = models.CharField(_("request id"), max_length=200, blank=True)
    is_internal = models.BooleanField(_("internal"), default=False)
    created_at = models.DateTimeField(_("time"))
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    fingerprint = HashField(max_length=16)
    digest = HashField(max_length=32)
    seal = HashField(max_length=32)
    blobs: "models.ManyToManyField[Blob, Any]" = models.ManyToManyField("Blob", related_name="messages", blank=True)

    objects = models.Manager.from_queryset(MessageQuerySet)()  # type: ignore[misc]

    class Meta(AppendOnlyModel.Meta):
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["session", "seq"]
        constraints = [
            UniqueConstraint(fields=["session", "seq"], name="message_one_entry_per_seq"),
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

    @property
    def is_message(self) -> bool:
        """Whether it is shown as a message. `Session.message_count` counts those on the path to the head."""
        return self.kind in MESSAGES and not self.is_internal


class ToolCall(AppendOnlyModel):
    """One tool call and its outcome, for pages, admin and REST: a projection of the results on the path."""

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        SUCCESS = "success", _("success")
        FAILED = "failed", _("failed")
        SKIPPED = "skipped", _("skipped")
        INTERRUPTED = "interrupted", _("interrupted")

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, models.CASCADE, "tool_calls", verbose_name=_("session"), db_index=False)
    message = models.ForeignKey(Message, models.CASCADE, "tool_calls", verbose_name=_("message"), db_index=False)
    index = models.PositiveIntegerField(_("place"))
    call_id = models.CharField(_("call id"), max_length=200, blank=True)
    name = models.CharField(_("tool"), max_length=200)
    arguments = models.TextField(_("arguments"), blank=True)
    result = models.TextField(_("result"), blank=True)
    status = models.CharField(_("status"), max_length=12, choices=Status.choices, default=Status.PENDING)
    error = models.TextField(_("error"), blank=True)
    created_at = models.DateTimeField(_("requested"))
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    duration = models.FloatField(_("duration"), null=True, blank=True)
    # The entry of the same session that holds the outcome, and the place in it.
    answered_by = models.PositiveBigIntegerField(_("answered by entry"), null=True, blank=True)
    answer_index = models.PositiveIntegerField(null=True, blank=True)

    class Meta(AppendOnlyModel.Meta):
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        ordering = ["message", "index"]
        constraints = [
            UniqueConstraint(fields=["message", "index"], name="toolcall_one_row_per_call"),
            UniqueConstraint(fields=["session", "answered_by", "answer_index"], name="toolcall_one_call_per_result"),
            models.CheckConstraint(
                condition=Q(answered_by__isnull=True, answer_index__isnull=True, status__in=["pending", "interrupted"])
                | (Q(answered_by__isnull=False, answer_index__isnull=False) & ~Q(status="pending")),
                name="toolcall_outcome_has_an_entry",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.status})"


class Blob(UndeletableModel):
    """A long payload, stored once under the hash of its bytes."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    data = models.BinaryField()
    size = models.PositiveBigIntegerField(_("size"))
    media_type = models.CharField(_("media type"), max_length=100, default="text/plain")
    created_at = models.DateTimeField(_("created"), default=timezone.now, db_index=True)

    class Meta(UndeletableModel.Meta):
        verbose_name = _("blob")
        verbose_name_plural = _("blobs")


class SearchRow(models.Model):
    """Tokens of a section of a message's searchable text. `record.search_rows` writes it, `search` reads it."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="search_rows")
    # Offsets of the section in the searchable text of the entry.
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    tokens = TokensField()


guard_links(Message.blobs.through)
