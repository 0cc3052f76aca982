"""Relayed calls: ids that providers gave out, and how far each journal is digested."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class IssuedId(models.Model):
    """An id that a provider gave out (of an answer, an item, a conversation, a container), and the key that got it.

    All keys share one account of the provider, so a key may refer only to ids that it got.
    """

    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(max_length=200)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "key"], name="issued_id_once")]


class JournalPosition(models.Model):
    """Position of the digester in one journal, stored with the rows that it wrote; and what the journal has lost."""

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
    """An answer's entry by its provider's name, or by a form that a client may send back (`returned_answers`)."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200)
    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey("history.Session", on_delete=models.CASCADE, related_name="+")
    seq = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "key"], name="named_reply_once")]
