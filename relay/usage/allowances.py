"""Allowances of users: messages per minute, tokens and cost per day.

What they may use is in their `Allowance`, or else in the settings. What they used is counted in rows of its own and
not summed up from sessions or keys, so deleting those gives nothing back. Messages are counted and checked against the
limit in one step, in any process. Tokens and cost are known only when a call has ended, so each call of a chat or a
program reserves first what it may use at most (`relay.gateway.limits.budgets`).

The minute is any 60 seconds. The day is that of the server's time zone (PARLEY_TIME_ZONE), so that nobody begins a new
one by moving to another zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import F, Q
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from history.db.transactions import writing
from relay.errors import BudgetReserved, OverAllowance
from relay.models import Allowance, RecentMessage, Spending

MINUTE = timedelta(seconds=60)
MOST_TOKENS = 10**12  # of one call: more is somebody's nonsense, and too much of it would not fit into the column
MOST_COST = Decimal(10**6)

MESSAGES, TOKENS, COST = "messages per minute", "tokens per day", "cost per day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """0 is no limit."""

    messages_per_minute: int = 0
    tokens_per_day: int = 0
    cost_per_day: Decimal = Decimal(0)


def limits_of(user: Any) -> Limits:
    """Of a user or of a user's id: the person's own, and where they have none the general ones."""
    own = Allowance.objects.filter(user=user).first() or Allowance()
    names = ("messages_per_minute", "tokens_per_day", "cost_per_day")
    general = {name: getattr(settings, f"PARLEY_CHAT_{name.upper()}") for name in names}
    return Limits(**{name: _given(getattr(own, name), general[name]) for name in names})


def _given(own: Any, general: Any) -> Any:
    return general if own is None else own


def spent_today(user: Any) -> Spending:
    """What they used today; an empty row, not stored, where that is nothing."""
    day = _today()
    return Spending.objects.filter(user=user, day=day).first() or Spending(user=user, day=day)


def note_message(user: Any) -> None:
    """Count a message that is about to be sent; raises OverAllowance, and counts nothing, if it may not be."""
    limits = limits_of(user)
    with writing():
        # One at a time per person. On SQLite every transaction that writes waits for the one before it anyway.
        get_user_model().objects.select_for_update(no_key=True).filter(pk=user.pk).values_list("pk").first()
        now = timezone.now()
        RecentMessage.objects.filter(user=user).exclude(_about(now)).delete()
        _check_pace(user, limits, now)
        _check_budget(user, limits)
        RecentMessage.objects.create(user=user, at=now)
        _add(user, messages=1)


def note_usage(user: Any, *, tokens: int = 0, cost: Decimal | float | int = 0) -> None:
    """Count what a call has used."""
    with writing():
        _add(
            user,
            tokens=max(0, min(tokens, MOST_TOKENS)),
            cost=max(Decimal(0), min(Decimal(str(cost)), MOST_COST)).quantize(Decimal("0.000001")),
        )


def check_allowance(user: Any) -> None:
    """Raises OverAllowance if a message that they sent now would be refused. Counts nothing."""
    limits = limits_of(user)
    _check_pace(user, limits, timezone.now())
    _check_budget(user, limits)


def check_budget(user: Any) -> Limits:
    """The same for the day alone, before each call of an answer, which then reserves its share of these limits."""
    limits = limits_of(user)
    _check_budget(user, limits)
    return limits


def told(error: OverAllowance) -> str:
    """What the person reads: which limit, and when it goes on, in the time zone and language that hold."""
    until = timezone.localtime(error.until)
    if error.what == MESSAGES:
        return _("You are sending messages too fast. Try again at %(time)s.") % {"time": date_format(until, "H:i:s")}
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
    # The one that has to grow older than a minute before there is room again.
    oldest = recent.values_list("at", flat=True)[limits.messages_per_minute - 1 : limits.messages_per_minute].first()
    if oldest is not None:
        raise OverAllowance(what=MESSAGES, until=min(oldest, now) + MINUTE)


def _about(now: datetime) -> Q:
    """The last minute, and what another machine's clock calls the next; beyond that a clock has been put back."""
    return Q(at__gt=now - MINUTE, at__lt=now + MINUTE)


def _check_budget(user: Any, limits: Limits) -> None:
    if not limits.tokens_per_day and not limits.cost_per_day:
        return
    spent = spent_today(user)
    if limits.tokens_per_day and spent.tokens >= limits.tokens_per_day:
        raise OverAllowance(what=TOKENS, until=_tomorrow())
    if limits.cost_per_day and spent.cost >= limits.cost_per_day:
        raise OverAllowance(what=COST, until=_tomorrow())


def _add(user: Any, **amounts: Any) -> None:
    """Add to today's row in the database, whoever else is adding to it."""
    day = _today()
    Spending.objects.bulk_create([Spending(user=user, day=day)], ignore_conflicts=True)
    sums = {name: F(name) + amount for name, amount in amounts.items() if amount}
    if sums:
        Spending.objects.filter(user=user, day=day).update(**sums)


def _today() -> date:
    return timezone.now().astimezone(_zone()).date()


def _tomorrow() -> datetime:
    return datetime.combine(_today() + timedelta(days=1), time.min, tzinfo=_zone())


def _zone() -> ZoneInfo:
    return ZoneInfo(settings.TIME_ZONE)
