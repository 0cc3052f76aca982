"""Who answers, what is being answered now, and what waits: the state of the carrier, beside the record.

Sessions are named by their id without a foreign key: they come and go in `history`, which knows nothing of us, and a
run or a waiting message of a session that is gone is nobody's.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Agent(models.Model):
    """Somebody to talk to: an instruction, the models it thinks with, the tools it may use."""

    name = models.SlugField(_("name"), max_length=100, unique=True, help_text=_("Stored with everything it says."))
    label = models.CharField(_("shown as"), max_length=100, blank=True)
    instruction = models.TextField(_("system instruction"), blank=True)
    model = models.CharField(_("model"), max_length=160, blank=True, help_text=_("Empty: as the person picks."))
    planner_model = models.CharField(_("model that plans"), max_length=160, blank=True)
    reviewer_model = models.CharField(_("model that reviews"), max_length=160, blank=True)
    tools = models.JSONField(_("tools"), default=list, blank=True)
    agents = models.JSONField(
        _("agents it may call"), default=list, blank=True, help_text=_("With the tool call_agent. None: all others.")
    )
    max_steps = models.PositiveSmallIntegerField(_("model calls per turn"), default=12)
    max_turns = models.PositiveSmallIntegerField(_("turns it is told"), null=True, blank=True)
    max_answer_tokens = models.PositiveIntegerField(_("tokens per answer"), null=True, blank=True)
    max_turn_tokens = models.PositiveIntegerField(
        _("tokens per turn"), null=True, blank=True, help_text=_("Read and written, with the agents that it calls.")
    )
    compress_at = models.FloatField(
        _("compress at"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(1.0)],
        help_text=_("Share of the model's window, such as 0.8. Empty: as the settings say."),
    )
    keep_turns = models.PositiveSmallIntegerField(
        _("turns left whole"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("So many of the newest stay as they are. Empty: as the settings say."),
    )
    environment = models.BooleanField(
        _("knows its surroundings"),
        default=False,
        help_text=_("A conversation begins with the date, the system, its folders and its notebook."),
    )
    folders = models.JSONField(
        _("working folders"),
        default=list,
        blank=True,
        help_text=_("One on each line; it is told what is in them. Only below PARLEY_FOLDERS."),
    )
    live_screen = models.BooleanField(
        _("sees live panels"), default=False, help_text=_("With each call it is told what its tools show just now.")
    )
    temperature = models.FloatField(_("temperature"), null=True, blank=True)
    reasoning_effort = models.CharField(_("reasoning effort"), max_length=20, blank=True)
    is_default = models.BooleanField(_("answers unless another is picked"), default=False)

    class Meta:
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="agent_one_default"),
        ]

    def __str__(self) -> str:
        return self.label or self.name


class McpServer(models.Model):
    """A server of the Model Context Protocol whose tools agents may use. `tools`: as it told when somebody looked."""

    class Transport(models.TextChoices):
        STDIO = "stdio", _("a program on this server (stdio)")
        HTTP = "http", _("an address (streamable HTTP)")

    name = models.CharField(
        _("name"),
        max_length=30,
        unique=True,
        validators=[RegexValidator(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", _("Small letters, digits and single dashes."))],
        help_text=_("Its tools are called name__tool."),
    )
    transport = models.CharField(_("reached by"), max_length=10, choices=Transport.choices)
    command = models.CharField(_("program"), max_length=500, blank=True)
    arguments = models.JSONField(_("arguments"), default=list, blank=True)
    url = models.CharField(_("address"), max_length=500, blank=True)
    # Encrypted: relay.tools.mcp.sealed.
    environment = models.TextField(_("environment"), blank=True)
    headers = models.TextField(_("headers"), blank=True)
    seconds = models.PositiveSmallIntegerField(
        _("seconds for a call"), default=30, validators=[MinValueValidator(1), MaxValueValidator(600)]
    )
    is_enabled = models.BooleanField(_("switched on"), default=True)
    tools = models.JSONField(_("tools"), default=list, blank=True, editable=False)
    looked_at = models.DateTimeField(_("looked at"), null=True, blank=True, editable=False)
    problem = models.TextField(_("problem"), blank=True, editable=False)

    class Meta:
        verbose_name = _("MCP server")
        verbose_name_plural = _("MCP servers")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_forbidden(self) -> bool:
        """A program, while the operator has not allowed programs."""
        return self.transport == self.Transport.STDIO and not settings.PARLEY_MCP_COMMANDS


class Run(models.Model):
    """One turn being answered, in whichever process: any number of calls to models and tools, until an outcome."""

    class Outcome(models.TextChoices):
        DONE = "done", _("done")
        WAITING = "waiting", _("waiting for an answer")
        LIMIT = "limit", _("stopped at a limit")
        STOPPED = "stopped", _("stopped")
        FAILED = "failed", _("failed")
        LOST = "lost", _("lost")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.UUIDField(_("session"))
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.CASCADE, related_name="+", db_index=False
    )
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=160, blank=True)
    # What it answers, and the entry that its next one follows: its own leaf, wherever the session's head is.
    origin = models.PositiveBigIntegerField(_("answers entry"), default=0)
    leaf = models.PositiveBigIntegerField(_("leaf"), default=0)
    started_at = models.DateTimeField(_("started"), default=timezone.now)
    heartbeat_at = models.DateTimeField(_("last sign of life"), default=timezone.now)
    stop_requested_at = models.DateTimeField(_("stop asked"), null=True, blank=True)
    compression_asked_at = models.DateTimeField(_("summary asked"), null=True, blank=True)
    summarising_at = models.DateTimeField(_("summarising since"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome.choices, blank=True)
    error = models.TextField(_("error"), blank=True)
    # The run whose end sent the message that this one answers, out of the queue.
    follows = models.UUIDField(_("follows run"), null=True, blank=True)
    # The process that carries it (`relay.runtime.process_locks`).
    process = models.CharField(_("process"), max_length=40, blank=True)

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-started_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, outcome="") | (Q(ended_at__isnull=False) & ~Q(outcome="")),
                name="run_end_has_an_outcome",
            )
        ]
        indexes = [
            models.Index(fields=["session", "started_at"], name="run_of_session"),
            models.Index(fields=["owner"], name="run_running_of_owner", condition=Q(ended_at__isnull=True)),
            models.Index(fields=["heartbeat_at"], name="run_running", condition=Q(ended_at__isnull=True)),
            models.Index(fields=["ended_at"], name="run_ended", condition=Q(ended_at__isnull=False)),
            models.Index(fields=["follows"], name="run_follows", condition=Q(follows__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.session} {self.outcome or 'running'}"


class QueuedMessage(models.Model):
    """A message that was written during an answer. It is sent when that answer has ended well.

    After a stop or an error it is held: its owner sends it, drops it, or sends another message behind it.
    """

    session = models.UUIDField(_("session"), db_index=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.CASCADE, related_name="+"
    )
    text = models.TextField(_("text"))
    attachments = models.JSONField(_("attachments"), default=list, blank=True)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=160, blank=True)
    # An entry of the conversation that it continues; another branch does not send it.
    after = models.PositiveBigIntegerField(_("after entry"), default=0)
    held_at = models.DateTimeField(_("held since"), null=True, blank=True)
    # Why it was refused: the class of the error. Those behind it are sent.
    error = models.CharField(_("error"), max_length=40, blank=True)
    # A process is carrying out the tool command that this is. It is deleted with the entry that records the result.
    claimed_at = models.DateTimeField(_("being carried out since"), null=True, blank=True)
    # That process (`relay.runtime.process_locks`).
    process = models.CharField(_("process"), max_length=40, blank=True)
    created_at = models.DateTimeField(_("written"), default=timezone.now)

    class Meta:
        verbose_name = _("waiting message")
        verbose_name_plural = _("waiting messages")
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.text[:60]


class Allowance(models.Model):
    """What one person may use; empty: the general limits of the settings. 0 is no limit, here as there."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), on_delete=models.CASCADE, related_name="allowance"
    )
    messages_per_minute = models.PositiveIntegerField(_("messages per minute"), null=True, blank=True)
    tokens_per_day = models.PositiveBigIntegerField(_("tokens per day"), null=True, blank=True)
    cost_per_day = models.DecimalField(
        _("cost per day"),
        max_digits=12,
        decimal_places=4,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
    )

    class Meta:
        verbose_name = _("allowance")
        verbose_name_plural = _("allowances")

    def __str__(self) -> str:
        return str(self.user)


class Spending(models.Model):
    """What one person used on one day. It outlives the sessions in which they used it."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), on_delete=models.CASCADE, related_name="spendings"
    )
    day = models.DateField(_("day"), db_index=True)
    messages = models.PositiveIntegerField(_("messages"), default=0)
    tokens = models.PositiveBigIntegerField(_("tokens"), default=0)
    cost = models.DecimalField(_("cost"), max_digits=14, decimal_places=6, default=0)

    class Meta:
        verbose_name = _("use")
        verbose_name_plural = _("use by day")
        ordering = ["-day", "user"]
        constraints = [models.UniqueConstraint(fields=["user", "day"], name="spending_one_row_per_day")]

    def __str__(self) -> str:
        return f"{self.user} {self.day}"


class RecentMessage(models.Model):
    """When somebody sent something: as many rows as fit into the last minute, no text."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["user", "at"], name="recent_message_of_user")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.at:%H:%M:%S}"


class KeyUse(models.Model):
    """What one key used on one day, chiefly through the relay. It outlives the sessions in which it was used."""

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(_("day"), db_index=True)
    requests = models.PositiveBigIntegerField(_("requests"), default=0)
    tokens = models.PositiveBigIntegerField(_("tokens"), default=0)
    cost = models.DecimalField(_("cost"), max_digits=14, decimal_places=6, default=0)

    class Meta:
        verbose_name = _("use of a key")
        verbose_name_plural = _("use of keys by day")
        ordering = ["-day", "key"]
        constraints = [models.UniqueConstraint(fields=["key", "day"], name="key_use_one_row_per_day")]

    def __str__(self) -> str:
        return f"{self.key_id} {self.day}"


class KeyMinute(models.Model):
    """The same for one minute (counted since 1970): of keys that have a limit for it, and of the others the tokens that
    were digested. Gone when the minute is."""

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    minute = models.PositiveBigIntegerField(db_index=True)
    requests = models.PositiveBigIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "minute"], name="key_minute_once")]

    def __str__(self) -> str:
        return f"{self.key_id} {self.minute}"


class KeyStreams(models.Model):
    """How many calls of a key one process is carrying. Without a sign of life for a few seconds it carries none."""

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    process = models.CharField(max_length=120)
    count = models.PositiveIntegerField(default=0)
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "process"], name="key_streams_of_process")]

    def __str__(self) -> str:
        return f"{self.key_id} {self.process} {self.count}"


class IssuedId(models.Model):
    """The vendor's name of what it keeps (an answer, an item of one, a conversation, a container), and the key that was
    given it.

    Everybody's lie behind one account upstream, so a key may go on only from what was given to it.
    """

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(max_length=200)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "key"], name="issued_id_once")]


class JournalPosition(models.Model):
    """How far the digester of one journal came, written with what it made of it; and what that journal has lost."""

    journal = models.CharField(max_length=64, primary_key=True)
    position = models.JSONField(default=dict)
    digested_at = models.DateTimeField(_("digested up to"), null=True, blank=True)
    lost_calls = models.PositiveBigIntegerField(_("calls lost"), default=0)
    lost_bytes = models.PositiveBigIntegerField(_("bytes lost"), default=0)
    lost_at = models.DateTimeField(_("last lost"), null=True, blank=True)
    lost_why = models.TextField(_("why"), blank=True)

    class Meta:
        verbose_name = _("journal")
        verbose_name_plural = _("journals")

    def __str__(self) -> str:
        return self.journal


class NamedReply(models.Model):
    """An answer under the name that its vendor gave it: a client may go on from there and send what is new alone. Or
    under what a client may make of it, where it had begun the answer itself (`relay.digest.recognisers.prefills`)."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200)
    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey("history.Session", on_delete=models.CASCADE, related_name="+")
    seq = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "key"], name="named_reply_once")]

    def __str__(self) -> str:
        return self.name
