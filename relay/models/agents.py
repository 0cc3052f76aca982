"""Agents and MCP servers, as staff configure them."""

from typing import Literal

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

RoleName = Literal["planner", "executor", "reviewer"]
PURPOSE_CHARS = 200


class Agent(models.Model):
    """A limit of 0 means the same as an empty field."""

    name = models.SlugField(_("name"), max_length=100, unique=True, help_text=_("Stored with each of its messages."))
    label = models.CharField(_("shown as"), max_length=100, blank=True)
    instruction = models.TextField(_("system instruction"), blank=True)
    model = models.CharField(_("model"), max_length=160, blank=True, help_text=_("Empty: the user’s choice."))
    planner_model = models.CharField(_("planning model"), max_length=160, blank=True)
    reviewer_model = models.CharField(_("reviewing model"), max_length=160, blank=True)
    tools = models.JSONField(_("tools"), default=list, blank=True)
    agents = models.JSONField(
        _("callable agents"),
        default=list,
        blank=True,
        help_text=_("For the tool call_agent. None selected: all other agents."),
    )
    max_steps = models.PositiveSmallIntegerField(_("model calls per turn"), default=12)
    max_turns = models.PositiveSmallIntegerField(_("turns in context"), null=True, blank=True)
    max_answer_tokens = models.PositiveIntegerField(_("tokens per answer"), null=True, blank=True)
    max_turn_tokens = models.PositiveIntegerField(
        _("tokens per turn"),
        null=True,
        blank=True,
        help_text=_("Input and output, including the agents that it calls."),
    )
    compress_at = models.FloatField(
        _("compress at"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(1.0)],
        help_text=_("Share of the model’s window, such as 0.8. Empty: the default of the settings."),
    )
    keep_turns = models.PositiveSmallIntegerField(
        _("turns kept whole"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("The newest turns that stay unchanged. Empty: the default of the settings."),
    )
    environment = models.BooleanField(
        _("knows its environment"),
        default=False,
        help_text=_("The conversation starts with the date, the system, its folders and its notebook."),
    )
    folders = models.JSONField(
        _("working folders"),
        default=list,
        blank=True,
        help_text=_("One per line. The agent sees what is in them. Only below PARLEY_FOLDERS."),
    )
    live_screen = models.BooleanField(
        _("sees live panels"), default=False, help_text=_("Each call includes the current state of its tools.")
    )
    temperature = models.FloatField(_("temperature"), null=True, blank=True)
    reasoning_effort = models.CharField(_("reasoning effort"), max_length=20, blank=True)
    is_default = models.BooleanField(_("default agent"), default=False)

    class Meta:
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="agent_one_default")
        ]

    def __str__(self) -> str:
        return self.label or self.name

    @property
    def roles(self) -> tuple[RoleName, ...]:
        """Roles in the order of a turn. Most agents have only an executor; some plan before or review afterwards."""
        before: tuple[RoleName, ...] = ("planner",) if self.planner_model else ()
        after: tuple[RoleName, ...] = ("reviewer",) if self.reviewer_model else ()
        return (*before, "executor", *after)

    @property
    def purpose(self) -> str:
        """One line for other agents."""
        first = next(iter(self.instruction.strip().splitlines()), "")
        return " · ".join(filter(None, [self.label, first[:PURPOSE_CHARS]])) or self.name

    def model_for(self, role: RoleName, *, picked: str) -> str:
        """The model that the user picked is for the executor."""
        own = {"planner": self.planner_model, "reviewer": self.reviewer_model, "executor": picked or self.model}
        return own[role]


class McpServer(models.Model):
    """A server of the Model Context Protocol. `tools` is its list of tools at the last request."""

    class Transport(models.TextChoices):
        STDIO = "stdio", _("a program on this server (stdio)")
        HTTP = "http", _("an address (streamable HTTP)")

    name = models.CharField(
        _("name"),
        max_length=30,
        unique=True,
        validators=[
            RegexValidator(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", _("Lowercase letters, digits and single hyphens."))
        ],
        help_text=_("Its tools are called name__tool."),
    )
    transport = models.CharField(_("connection"), max_length=10, choices=Transport.choices)
    command = models.CharField(_("program"), max_length=500, blank=True)
    arguments = models.JSONField(_("arguments"), default=list, blank=True)
    url = models.CharField(_("address"), max_length=500, blank=True)
    # Encrypted: relay.tools.mcp.config.
    environment = models.TextField(_("environment"), blank=True)
    headers = models.TextField(_("headers"), blank=True)
    seconds = models.PositiveSmallIntegerField(
        _("timeout in seconds"), default=30, validators=[MinValueValidator(1), MaxValueValidator(600)]
    )
    is_enabled = models.BooleanField(_("enabled"), default=True)
    tools = models.JSONField(_("tools"), default=list, blank=True, editable=False)
    looked_at = models.DateTimeField(_("checked"), null=True, blank=True, editable=False)
    problem = models.TextField(_("problem"), blank=True, editable=False)

    class Meta:
        verbose_name = _("MCP server")
        verbose_name_plural = _("MCP servers")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_forbidden(self) -> bool:
        return self.transport == self.Transport.STDIO and not settings.PARLEY_MCP_COMMANDS
