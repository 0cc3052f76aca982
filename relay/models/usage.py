"""Limits of users, and what users and API keys have used."""

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _


class Allowance(models.Model):
    """Limits of one user. An empty field means the limit of the settings, 0 means no limit."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), on_delete=models.CASCADE, related_name="allowance"
    )
    messages_per_minute = models.PositiveIntegerField(_("messages per minute"), null=True, blank=True)
    tokens_per_day = models.PositiveBigIntegerField(_("tokens per day"), null=True, blank=True)
    cost_per_day = models.DecimalField(
        _("cost per day"), max_digits=12, decimal_places=4, null=True, blank=True, validators=[MinValueValidator(0)]
    )

    class Meta:
        verbose_name = _("allowance")
        verbose_name_plural = _("allowances")

    def __str__(self) -> str:
        return str(self.user)


class Spending(models.Model):
    """Usage of one user on one day. It stays when the sessions are deleted."""

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
    """The time of a message that a user sent within the last minute, for the rate limit."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["user", "at"], name="recent_message_of_user")]


class KeyUse(models.Model):
    """Usage of one API key on one day. It stays when the sessions are deleted."""

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


class KeyMinute(models.Model):
    """Usage of a key in one minute (since 1970). Without a limit per minute it has only tokens that were digested."""

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    minute = models.PositiveBigIntegerField(db_index=True)
    requests = models.PositiveBigIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "minute"], name="key_minute_once")]


class KeyStreams(models.Model):
    """Number of open calls of a key in one process. A row that is not updated for a few seconds does not count."""

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    process = models.CharField(max_length=120)
    count = models.PositiveIntegerField(default=0)
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "process"], name="key_streams_of_process")]
