"""Exchanges (calls to a model), earlier tries of them and token calibration."""

import uuid
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import ForeignKey, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.models.access import ApiKey
from history.models.append_only import UndeletableModel, UndeletableQuerySet, guard_links
from history.models.messages import Blob, Message
from history.models.sessions import Session

MOST_PRICE = Decimal(10**8)
PLAN = "plan"  # `metadata["billing"]` of a call that the caller's own subscription pays


def read_list_price(metadata: Mapping[str, Any]) -> Decimal | None:
    """The list price beside a cost of 0. An imported file may have anything there."""
    try:
        price = Decimal(str(metadata.get("list_price", "")))
    except InvalidOperation:
        return None
    return price if price.is_finite() and 0 < price < MOST_PRICE else None


class ExchangeQuerySet(UndeletableQuerySet["Exchange"]):
    def running(self) -> Self:
        return self.filter(ended_at=None)


class Exchange(UndeletableModel):
    """One call to a model: created before the request is sent, ended exactly once with a reason."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = ForeignKey(Session, models.CASCADE, "exchanges", verbose_name=_("session"), null=True, db_index=False)
    owner = ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, "exchanges", verbose_name=_("owner"))
    api_key = ForeignKey(ApiKey, models.PROTECT, "exchanges", verbose_name=_("API key"), null=True, blank=True)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    provider = models.CharField(_("provider"), max_length=60, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    dialect = models.CharField(_("dialect"), max_length=40, blank=True)
    # The entry that the answer will follow, and the inputs of the request.
    after = models.PositiveBigIntegerField(_("after entry"), default=0)
    history_version = models.PositiveBigIntegerField(_("history version"), default=0)
    renderer_version = models.CharField(_("renderer version"), max_length=20, blank=True)
    request_hash = models.CharField(_("hash of the request"), max_length=64, blank=True)
    inputs = models.JSONField(_("inputs"), default=dict, blank=True)
    blobs: models.ManyToManyField[Blob, Any] = models.ManyToManyField(Blob, related_name="exchanges", blank=True)

    started_at = models.DateTimeField(_("started"), default=timezone.now)
    heartbeat_at = models.DateTimeField(_("last heartbeat"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    end_reason = models.CharField(_("end reason"), max_length=40, blank=True)
    stop_requested_at = models.DateTimeField(_("stop requested"), null=True, blank=True)
    # The answer so far, as the JSON of a ModelOutput. Not part of the sealed record; emptied at the end.
    partial = models.TextField(blank=True)
    message = models.OneToOneField(
        Message, models.SET_NULL, related_name="exchange", verbose_name=_("message"), null=True, blank=True
    )
    attempts = models.PositiveIntegerField(_("attempts"), default=1)
    status_code = models.PositiveIntegerField(_("HTTP status"), null=True, blank=True)
    error = models.TextField(_("error"), blank=True)
    # The estimate before calibration, compared with the vendor's count.
    estimated_tokens = models.PositiveIntegerField(_("tokens estimated"), default=0)
    usage = models.JSONField(_("usage"), default=dict, blank=True)
    cost = models.DecimalField(_("cost"), max_digits=14, decimal_places=6, default=0)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    objects = models.Manager.from_queryset(ExchangeQuerySet)()  # type: ignore[misc]

    class Meta(UndeletableModel.Meta):
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
            # Includes the session (always null): without it SQLite walks all calls that have no session.
            models.Index(fields=["session", "ended_at"], name="exchange_loose", condition=Q(session__isnull=True)),
        ]

    @property
    def is_paid_by_plan(self) -> bool:
        """Whether the caller's own subscription paid for it, so that it cost nothing here."""
        return bool(self.metadata.get("billing") == PLAN)

    @property
    def list_price(self) -> Decimal | None:
        """What it would have cost; None if it is not paid by a plan, or if no price is known."""
        if not self.is_paid_by_plan:
            return None
        return read_list_price(self.metadata)

    def __str__(self) -> str:
        return f"{self.model or '–'}, {timezone.localtime(self.started_at):%Y-%m-%d %H:%M:%S}"


class EarlierTry(models.Model):
    """The id of a call that its client retried. It points to the exchange that all tries share."""

    id = models.UUIDField(primary_key=True, editable=False)
    exchange = ForeignKey(Exchange, on_delete=models.CASCADE, related_name="earlier_tries")


class TokenCalibration(models.Model):
    model = models.CharField(_("model"), max_length=100, primary_key=True)
    factor = models.FloatField(_("factor"), default=1.0)
    samples = models.PositiveIntegerField(_("samples"), default=0)
    updated_at = models.DateTimeField(_("updated"), auto_now=True)

    class Meta:
        verbose_name = _("token calibration")
        verbose_name_plural = _("token calibrations")


guard_links(Exchange.blobs.through)
