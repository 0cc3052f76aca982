"""Counts per day, owner, key, source, agent and model, for charts."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from history.models.access import ApiKey
from history.models.sessions import Session


class DayTally(models.Model):
    """Counts of one owner, key, source, agent and model on one day (UTC), written by `record.daily_counts`.

    The numbers have no lower bound, because an added difference may be negative.
    """

    day = models.DateField(_("day"))
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    api_key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    source = models.CharField(_("source"), max_length=10, choices=Session.Source.choices)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)

    sessions = models.IntegerField(_("sessions started"), default=0)
    messages = models.IntegerField(_("messages"), default=0)
    answers = models.IntegerField(_("answers"), default=0)
    cut_short = models.IntegerField(_("answers cut short"), default=0)
    errors = models.IntegerField(_("errors"), default=0)
    input_tokens = models.BigIntegerField(_("tokens read"), default=0)
    output_tokens = models.BigIntegerField(_("tokens written"), default=0)
    cost = models.DecimalField(_("cost"), max_digits=16, decimal_places=6, default=0)
    tool_calls = models.IntegerField(_("tool calls"), default=0)
    tool_milliseconds = models.BigIntegerField(_("time of tools"), default=0)
    # Answers by the time to their first token, in the classes of `daily_count_rules.WAITS`.
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

    # Every change adds one. `daily_counts.check` stores the revision that it compared with the record.
    revision = models.BigIntegerField(default=0)
    checked_revision = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = _("daily count")
        verbose_name_plural = _("daily counts")
        ordering = ["-day", "pk"]
        indexes = [models.Index(fields=["owner", "day"], name="tally_of_owner")]
        constraints = [
            # NULL keys are not equal to each other: without Coalesce the upsert would add a row each time.
            models.UniqueConstraint(
                "day", "owner", Coalesce("api_key", 0), "source", "agent", "model", name="tally_one_row_per_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.model}"


class StaleDay(models.Model):
    """A day whose counts must be recomputed, because they were not written with the record."""

    day = models.DateField(_("day"))
