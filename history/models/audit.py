"""Audit events: a sealed chain of who read, exported, held or removed what."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from history.fields import HashField
from history.models.append_only import AppendOnlyModel


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
