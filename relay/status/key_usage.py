"""Usage of API keys: tokens, cost and sessions of each key, against its limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.models import ApiKey, Session
from relay.models import KeyUse
from relay.usage.allowances import limits_of, spent_today
from relay.usage.prices import Use, today

# Name of the field, label, and the period over which use is added up ("": counted by the minute).
LIMITS = (
    ("requests_per_minute", _("requests per minute"), ""),
    ("tokens_per_minute", _("tokens per minute"), ""),
    ("concurrent_streams", _("concurrent calls"), ""),
    ("tokens_per_day", _("tokens per day"), "day"),
    ("tokens_per_month", _("tokens per month"), "month"),
    ("cost_per_day", _("cost per day"), "day"),
    ("cost_per_month", _("cost per month"), "month"),
)


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
    tokens = Limit(words=_("tokens per day"), most=most, used=used, is_cost=False)
    cost = Limit(words=_("cost per day"), most=limits.cost_per_day, used=spent.cost, is_cost=True)
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
