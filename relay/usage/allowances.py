"""Allowances of users (messages per minute, tokens and cost per day) and use of API keys against their limits.

Use is counted in rows of its own and not summed up from sessions or keys, so deleting those gives nothing back. Tokens
and cost are known only when a call has ended, so each call reserves first (`relay.usage.budgets`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Count, QuerySet, Sum
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _, gettext_lazy

from history.db import bulk
from history.db.prepared import prepared, prepared_delete
from history.db.transactions import writing
from history.models import ApiKey, Session
from relay.errors import BudgetReserved, OverAllowance
from relay.models import Allowance, KeyUse, RecentMessage, Spending
from relay.usage import tables
from relay.usage.prices import NO_USE, Use, start_of_tomorrow, today

MINUTE = timedelta(seconds=60)
MESSAGES, TOKENS, COST = "messages per minute", "tokens per day", "cost per day"
# Name of the field, label, and the period over which use is added up ("": counted by the minute).
LIMITS = (
    ("requests_per_minute", gettext_lazy("requests per minute"), ""),
    ("tokens_per_minute", gettext_lazy("tokens per minute"), ""),
    ("concurrent_streams", gettext_lazy("concurrent calls"), ""),
    ("tokens_per_day", gettext_lazy("tokens per day"), "day"),
    ("tokens_per_month", gettext_lazy("tokens per month"), "month"),
    ("cost_per_day", gettext_lazy("cost per day"), "day"),
    ("cost_per_month", gettext_lazy("cost per month"), "month"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    """0 means no limit."""

    messages_per_minute: int = 0
    tokens_per_day: int = 0
    cost_per_day: Decimal = Decimal(0)

    @property
    def has_budget(self) -> bool:
        return bool(self.tokens_per_day or self.cost_per_day)


def limits_of(user: Any) -> UserLimits:
    """Limits of a user, or of a user's id: their own, else those of the settings."""
    own = _allowance_of.first(getattr(user, "pk", user)) or _NO_ALLOWANCE
    names = ("messages_per_minute", "tokens_per_day", "cost_per_day")
    general = {name: getattr(settings, f"PARLEY_CHAT_{name.upper()}") for name in names}
    return UserLimits(**general | {name: value for name in names if (value := getattr(own, name)) is not None})


_NO_ALLOWANCE = Allowance()


@prepared
def _allowance_of(user_id: int) -> QuerySet[Allowance]:
    return Allowance.objects.filter(user=user_id)


def spent_today(user: Any) -> Spending:
    """The row of today; an unsaved empty one if there is none."""
    day = today()
    return Spending.objects.filter(user=user, day=day).first() or Spending(user=user, day=day)


def note_message(user: Any) -> None:
    """Count a message that is about to be sent. Raises OverAllowance, and counts nothing, if it is over a limit."""
    limits = limits_of(user)
    with writing():
        # One at a time per user. On SQLite every transaction that writes waits for the one before it anyway.
        if connection.features.has_select_for_update:
            get_user_model().objects.select_for_update(no_key=True).filter(pk=user.pk).values_list("pk").first()
        now = timezone.now()
        _forget_old_messages(user.pk, now - MINUTE, now + MINUTE)
        _check_pace(user, limits, now)
        _check_budget(user, limits)
        bulk.insert(RecentMessage, [RecentMessage(user_id=user.pk, at=now)])
        tables.add_owner_day(user.pk, today(), NO_USE, messages=1)


def note_usage(user: Any, *, tokens: int = 0, cost: Decimal | float | int = 0) -> None:
    tables.add_owner_day(user.pk, today(), Use(0, tokens, Decimal(str(cost))))


def check_allowance(user: Any) -> None:
    """Raise OverAllowance if a message that is sent now would be refused. Counts nothing."""
    limits = limits_of(user)
    _check_pace(user, limits, timezone.now())
    _check_budget(user, limits)


def check_budget(user: Any) -> UserLimits:
    """The same for the day alone, before each call of an answer. Returns the limits that the call reserves from."""
    limits = limits_of(user)
    _check_budget(user, limits)
    return limits


def over_allowance_text(error: OverAllowance) -> str:
    """In the active time zone and language."""
    until = timezone.localtime(error.until)
    if error.what == MESSAGES:
        return _("Too many messages at once. Try again at %(time)s.") % {"time": date_format(until, "H:i:s")}
    # The names of the limits are translated with the model's fields.
    words = {"what": _(error.what), "time": date_format(until, "SHORT_DATETIME_FORMAT")}
    return _("Your allowance is used up (%(what)s). You can continue on %(time)s.") % words


def reserved_text(error: BudgetReserved) -> str:
    what = {"what": _(error.what)}
    return _("Your running answers may use up your limit (%(what)s). Try again when one of them has ended.") % what


def _check_pace(user: Any, limits: UserLimits, now: datetime) -> None:
    if not limits.messages_per_minute:
        return
    recent = _recent_messages(getattr(user, "pk", user), now - MINUTE, now + MINUTE)
    if len(recent) >= limits.messages_per_minute:
        # The message that must become older than a minute.
        oldest = recent[limits.messages_per_minute - 1]
        raise OverAllowance(what=MESSAGES, until=min(oldest, now) + MINUTE)


# The last minute, and the next one, where another machine's clock may be; beyond it a clock was set back.
@prepared
def _recent_messages(user_id: int, after: datetime, before: datetime) -> QuerySet[RecentMessage, datetime]:
    """Newest first. Their number is limited by the limit itself."""
    recent = RecentMessage.objects.filter(user=user_id, at__gt=after, at__lt=before)
    return recent.order_by("-at").values_list("at", flat=True)


@prepared_delete
def _forget_old_messages(user_id: int, after: datetime, before: datetime) -> QuerySet[RecentMessage]:
    return RecentMessage.objects.filter(user=user_id).exclude(at__gt=after, at__lt=before)


def _check_budget(user: Any, limits: UserLimits) -> None:
    if not limits.has_budget:
        return
    spent = spent_today(user)
    if limits.tokens_per_day and spent.tokens >= limits.tokens_per_day:
        raise OverAllowance(what=TOKENS, until=start_of_tomorrow())
    if limits.cost_per_day and spent.cost >= limits.cost_per_day:
        raise OverAllowance(what=COST, until=start_of_tomorrow())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """`used` is None for limits that are counted by the minute."""

    words: Any
    most: Decimal
    used: Decimal | None
    is_cost: bool

    @property
    def is_used_up(self) -> bool:
        return self.used is not None and self.used >= self.most

    @property
    def percent(self) -> int:
        return min(100, round(100 * (self.used or 0) / self.most)) if self.most else 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    key: ApiKey
    day: Use
    month: Use
    sessions: int

    @property
    def state(self) -> str:
        if self.key.revoked_at:
            return "revoked"
        return "expired" if self.key.expires_at and self.key.expires_at <= timezone.now() else "active"

    @property
    def is_active(self) -> bool:
        return self.state == "active"

    @property
    def is_used_up(self) -> bool:
        """Calls are refused until the day or month of the budget is over."""
        return self.is_active and any(limit.is_used_up for limit in self.limits)

    @property
    def limits(self) -> list[Limit]:
        limits = []
        for name, words, period in LIMITS:
            if (most := getattr(self.key, name)) is not None:
                is_cost, use = name.startswith("cost"), {"day": self.day, "month": self.month}.get(period)
                used = None if use is None else Decimal(use.cost if is_cost else use.tokens)
                limits.append(Limit(words=words, most=Decimal(most), used=used, is_cost=is_cost))
        return limits


def budget_of(user: Any) -> list[Limit]:
    """Daily limits of a user over chats and all keys. Empty without limits."""
    limits, spent = limits_of(user), spent_today(user)
    most, used = Decimal(limits.tokens_per_day), Decimal(spent.tokens)
    tokens = Limit(words=gettext_lazy("tokens per day"), most=most, used=used, is_cost=False)
    cost = Limit(words=gettext_lazy("cost per day"), most=limits.cost_per_day, used=spent.cost, is_cost=True)
    return [limit for limit in (tokens, cost) if limit.most]


def load_key_usage(keys: Sequence[ApiKey]) -> list[KeyUsage]:
    """Three queries for any number of keys."""
    days, months = _usage_by_key(keys, since=today()), _usage_by_key(keys, since=today().replace(day=1))
    rows = Session.objects.open().filter(api_key__in=keys).order_by().values("api_key")
    counts = dict(rows.annotate(count=Count("pk")).values_list("api_key", "count"))
    return [
        KeyUsage(key=key, day=days.get(key.pk, Use()), month=months.get(key.pk, Use()), sessions=counts.get(key.pk, 0))
        for key in keys
    ]


def _usage_by_key(keys: Sequence[ApiKey], *, since: date) -> dict[int, Use]:
    rows = KeyUse.objects.filter(key__in=keys, day__range=(since, today()))
    sums = rows.order_by().values("key").annotate(Sum("requests"), Sum("tokens"), Sum("cost"))
    return {row["key"]: Use(row["requests__sum"], row["tokens__sum"], row["cost__sum"]) for row in sums}
