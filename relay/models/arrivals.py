"""Credentials of the latest call of each API key, and limits of subscriptions."""

from django.db import models


class KeyArrival(models.Model):
    """Which credentials the latest call of a key had, and in which headers. Never a credential itself."""

    key = models.OneToOneField("history.ApiKey", on_delete=models.CASCADE, related_name="+", primary_key=True)
    at = models.DateTimeField()
    key_header = models.CharField(max_length=40)
    has_login = models.BooleanField()
    has_account = models.BooleanField()
    client = models.CharField(max_length=40, blank=True)


class PlanLimits(models.Model):
    """The latest limits that a vendor reported for the subscription behind the calls of a key."""

    id = models.BigAutoField(primary_key=True)
    key = models.ForeignKey("history.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False)
    provider = models.CharField(max_length=60)
    headers = models.JSONField(default=dict)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "provider"], name="plan_limits_once")]
