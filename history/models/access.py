"""API keys with their limits, and the sealed chain of audit events."""

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.fields import HashField
from history.models.append_only import AppendOnlyModel


class ApiKey(models.Model):
    """An API key of the relay and the REST API. The key is shown once; only its hash is stored."""

    class Recording(models.TextChoices):
        FULL = "full", _("everything")
        REDACTED = "redacted", _("everything, credentials removed")
        NO_REPLIES = "no_replies", _("requests without the replies")
        METADATA = "metadata", _("times and counts only")
        OFF = "off", _("nothing")

    name = models.CharField(_("name"), max_length=100)
    prefix = models.CharField(_("prefix"), max_length=16, unique=True)
    secret_hash = HashField(max_length=32)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, "api_keys", verbose_name=_("owner"))
    scopes = models.JSONField(_("scopes"), default=list)
    owner_wide = models.BooleanField(_("sees all sessions of its owner"), default=False)
    recording = models.CharField(_("recording"), max_length=12, choices=Recording.choices, default=Recording.REDACTED)
    requests_per_minute = models.PositiveIntegerField(_("requests per minute"), null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(_("tokens per minute"), null=True, blank=True)
    concurrent_streams = models.PositiveIntegerField(_("concurrent streams"), null=True, blank=True)
    tokens_per_day = models.PositiveBigIntegerField(_("tokens per day"), null=True, blank=True)
    tokens_per_month = models.PositiveBigIntegerField(_("tokens per month"), null=True, blank=True)
    cost_per_day = models.DecimalField(_("cost per day"), max_digits=12, decimal_places=4, null=True, blank=True)
    cost_per_month = models.DecimalField(_("cost per month"), max_digits=12, decimal_places=4, null=True, blank=True)
    # Retention of this key's sessions. Empty means that the rule of the source applies.
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


class AuditEvent(AppendOnlyModel):
    """One event of the audit chain. It stores ids instead of names, so that names can be erased."""

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

    class Meta(AppendOnlyModel.Meta):
        verbose_name = _("audit event")
        verbose_name_plural = _("audit events")
        ordering = ["-seq"]

    def __str__(self) -> str:
        return f"#{self.seq} {self.action}"
