"""Allowances of users: messages per minute (any 60 seconds), tokens and cost per day.

Use is counted in rows of its own and not summed up from sessions or keys, so deleting those gives nothing back. Tokens
and cost are known only when a call has ended, so each call reserves first (`relay.usage.budgets`).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from history.db.transactions import writing
from relay.errors import BudgetReserved, OverAllowance
from relay.models import Allowance, RecentMessage, Spending
from relay.usage import tables
from relay.usage.prices import NO_USE, Use, start_of_tomorrow, today

MINUTE = timedelta(seconds=60)
MESSAGES, TOKENS, COST = "messages per minute", "tokens per day", "cost per day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """0 means no limit."""

    messages_per_minute: int = 0
    tokens_per_day: int = 0
    cost_per_day: Decimal = Decimal(0)

    @property
    def has_budget(self) -> bool:
        return bool(self.tokens_per_day or self.cost_per_day)


def limits_of(user: Any) -> Limits:
    """Limits of a user, or of a user's id: their own, else those of the settings."""
    own = Allowance.objects.filter(user=user).first() or Allowance()
    names = ("messages_per_minute", "tokens_per_day", "cost_per_day")
    general = {name: getattr(settings, f"PARLEY_CHAT_{name.upper()}") for name in names}
    return Limits(**general | {name: value for name in names if (value := getattr(own, name)) is not None})


def spent_today(user: Any) -> Spending:
    """The row of today; an unsaved empty one if there is none."""
    day = today()
    return Spending.objects.filter(user=user, day=day).first() or Spending(user=user, day=day)


def note_message(user: Any) -> None:
    """Count a message that is about to be sent. Raises OverAllowance, and counts nothing, if it is over a limit."""
    limits = limits_of(user)
    with writing():
        # One at a time per user. On SQLite every transaction that writes waits for the one before it anyway.
        get_user_model().objects.select_for_update(no_key=True).filter(pk=user.pk).values_list("pk").first()
        now = timezone.now()
        RecentMessage.objects.filter(user=user).exclude(_about(now)).delete()
        _check_pace(user, limits, now)
        _check_budget(user, limits)
        RecentMessage.objects.create(user=user, at=now)
        tables.add_owner_day(user.pk, today(), NO_USE, messages=1)


def note_usage(user: Any, *, tokens: int = 0, cost: Decimal | float | int = 0) -> None:
    tables.add_owner_day(user.pk, today(), Use(0, tokens, Decimal(str(cost))))


def check_allowance(user: Any) -> None:
    """Raise OverAllowance if a message that is sent now would be refused. Counts nothing."""
    limits = limits_of(user)
    _check_pace(user, limits, timezone.now())
    _check_budget(user, limits)


def check_budget(user: Any) -> Limits:
    """The same for the day alone, before each call of an answer. Returns the limits that the call reserves from."""
    limits = limits_of(user)
    _check_budget(user, limits)
    return limits


def over_allowance_text(error: OverAllowance) -> str:
    """For the user: which limit, and when it resets, in the active time zone and language."""
    until = timezone.localtime(error.until)
    if error.what == MESSAGES:
        return _("Too many messages at once. Try again at %(time)s.") % {"time": date_format(until, "H:i:s")}
    # The names of the limits are translated with the model's fields.
    words = {"what": _(error.what), "time": date_format(until, "SHORT_DATETIME_FORMAT")}
    return _("Your allowance is used up (%(what)s). You can continue on %(time)s.") % words


def reserved_text(error: BudgetReserved) -> str:
    what = {"what": _(error.what)}
    return _("Your running answers may use up your limit (%(what)s). Try again when one of them has ended.") % what


def _check_pace(user: Any, limits: Limits, now: datetime) -> None:
    if not limits.messages_per_minute:
        return
    recent = RecentMessage.objects.filter(_about(now), user=user).order_by("-at")
    # The message that must become older than a minute.
    oldest = recent.values_list("at", flat=True)[limits.messages_per_minute - 1 : limits.messages_per_minute].first()
    if oldest is not None:
        raise OverAllowance(what=MESSAGES, until=min(oldest, now) + MINUTE)


def _about(now: datetime) -> Q:
    """The last minute, and the next one, where another machine's clock may be; beyond it a clock was set back."""
    return Q(at__gt=now - MINUTE, at__lt=now + MINUTE)


def _check_budget(user: Any, limits: Limits) -> None:
    if not limits.has_budget:
        return
    spent = spent_today(user)
    if limits.tokens_per_day and spent.tokens >= limits.tokens_per_day:
        raise OverAllowance(what=TOKENS, until=start_of_tomorrow())
    if limits.cost_per_day and spent.cost >= limits.cost_per_day:
        raise OverAllowance(what=COST, until=start_of_tomorrow())
