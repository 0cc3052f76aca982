"""Budgets of keys and of their owners: a call reserves its share before it is sent, and settles when it has ended.

Only the end of a call tells what it used, so the reservation is what it may use at most: its input by size, and as much
output as it asks for (`PARLEY_RELAY_RESERVED_TOKENS` where it names no maximum). A call passes if it fits beside what
was used and what running calls have reserved. One that does not fit passes alone, while no other call runs, as long as
anything is left: so a budget is exceeded by at most one answer. That holds within a process, and with Redis across all
of them. Without Redis each process has an equal part of what is left, and the excess is at most one answer per process.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Literal
from zoneinfo import ZoneInfo

from django.conf import settings

from history.entries import Usage
from history.models import ApiKey
from relay.gateway import accounts, shared
from relay.gateway.accounts import Pool
from relay.gateway.bodies import parsed_apart
from relay.gateway.calls import Call
from relay.gateway.refusals import Refusal
from relay.gateway.routes import Upstream
from relay.gateway.usage import BYTES_PER_TOKEN
from relay.gateway.uses import Use, today
from relay.prices import cost_of

Unit = Literal["tokens", "cost"]
# As the dialects name it. In a text the quotes would be escaped; of several the largest counts.
_MOST_OUTPUT = re.compile(rb'"max(?:_completion_tokens|_output_tokens|_tokens|OutputTokens)"\s*:\s*(\d{1,9})')
MICRO = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One limit in tokens or dollars, and the pool that it is checked against."""

    pool: str
    unit: Unit
    limit: Decimal
    is_month: bool = False

    @property
    def words(self) -> str:
        amount = f"{self.limit.normalize():f}"
        period = "month" if self.is_month else "day"
        return f"{amount} tokens per {period}" if self.unit == "tokens" else f"${amount} per {period}"

    @property
    def is_owners(self) -> bool:
        return self.pool == "owner_day"

    @property
    def period(self) -> str:
        return f"{today():%Y-%m}" if self.is_month else today().isoformat()

    def wait(self) -> int:
        """Seconds until it begins anew."""
        until = _next_month() if self.is_month else _tomorrow()
        return max(1, math.ceil(until.timestamp() - time.time()))

    def of(self, use: Use) -> Decimal:
        return Decimal(use.tokens) if self.unit == "tokens" else use.cost

    def is_used_up(self, pool: Pool) -> bool:
        return self.of(pool.used) >= self.limit

    def has_room(self, pool: Pool, amount: Use) -> bool:
        """Whether the amount fits into this process's part of what is left, or the call would be the only one."""
        ours = self.of(pool.unwritten) + self.of(pool.open)
        if (ours + self.of(amount)) * pool.processes <= self.limit - self.of(pool.known):
            return True
        return pool.is_idle and (pool.processes == 1 or not self.of(pool.unwritten))


def budgets_of(key: ApiKey) -> Iterator[Budget]:
    limits = accounts.owner_of(key.owner_id).limits
    for pool, unit, limit, is_month in (
        ("key_day", "tokens", key.tokens_per_day, False),
        ("key_day", "cost", key.cost_per_day, False),
        ("key_month", "tokens", key.tokens_per_month, True),
        ("key_month", "cost", key.cost_per_month, True),
        ("owner_day", "tokens", limits.tokens_per_day or None, False),
        ("owner_day", "cost", limits.cost_per_day or None, False),
    ):
        if limit is not None:
            yield Budget(pool=pool, unit=unit, limit=Decimal(limit), is_month=is_month)  # type: ignore[arg-type]


def has_money_budget(key: ApiKey) -> bool:
    return any(budget.unit == "cost" for budget in budgets_of(key))


def check_used_up(key: ApiKey) -> None:
    """Refuse a call before its body is read where nothing is left."""
    budgets = list(budgets_of(key))
    pools = accounts.pools(key) if budgets else {}
    for budget in budgets:
        if budget.is_used_up(pools[budget.pool]):
            raise used_up(budget)


async def reserve(call: Call, upstream: Upstream) -> None:
    """Reserve what the call may use, or refuse it."""
    key = call.key
    budgets = list(budgets_of(key)) if call.is_limited and call.address.kind != "count" else []
    if not budgets:
        return
    has_money = any(budget.unit == "cost" for budget in budgets)
    amount = await parsed_apart(len(call.told), _most_use, call, upstream, has_money=has_money)
    if shared.is_there():
        verdict = await _reserve_in_redis(call, budgets, amount)
    else:
        verdict = accounts.reserve(key, call.name, amount, check=lambda pools: _objection(budgets, pools, amount))
    if verdict is not None:
        raise verdict


def settle(call: Call) -> None:
    """The call has ended and what it used is counted: what it had reserved is free again. May be called twice."""
    if not call.is_limited or not accounts.release(call.key, call.name):
        return
    if shared.is_there():
        budgets = list(budgets_of(call.key))
        counters = [(_counter(call.key, budget), _whole(budget, call.spent)) for budget in budgets]
        accounts.settling(call.key, call.spent)
        shared.settle(
            call.name,
            _scopes(call.key),
            counters,
            when_done=lambda: accounts.settling(call.key, call.spent, is_done=True),
        )


def _objection(budgets: list[Budget], pools: dict[str, Pool], amount: Use) -> Refusal | None:
    for budget in budgets:
        if budget.is_used_up(pools[budget.pool]):
            return used_up(budget)
        if not budget.has_room(pools[budget.pool], amount):
            return busy(budget)
    return None


async def _reserve_in_redis(call: Call, budgets: list[Budget], amount: Use) -> Refusal | None:
    """Redis decides for all processes. Where it does not answer, this process decides for itself."""
    key = call.key
    pools = accounts.pools(key, name=call.name)
    meters = [
        shared.Meter(
            counter=_counter(key, budget),
            is_owners=budget.is_owners,
            is_cost=budget.unit == "cost",
            # What Redis is just being told of would count twice.
            used=_whole(budget, pools[budget.pool].used) - _whole(budget, pools[budget.pool].settling),
            limit=int(budget.limit if budget.unit == "tokens" else budget.limit * MICRO),
            amount=_whole(budget, amount),
        )
        for budget in budgets
    ]
    held = (amount.tokens, int(amount.cost * MICRO))
    verdict = await shared.reserve(call.name, _scopes(key), held, meters)
    if verdict is None:
        return accounts.reserve(key, call.name, amount, check=lambda pools: _objection(budgets, pools, amount))
    place, is_used_up = verdict
    if place >= 0:
        return used_up(budgets[place]) if is_used_up else busy(budgets[place])
    accounts.reserve(key, call.name, amount, check=lambda _: None)
    return None


def _scopes(key: ApiKey) -> tuple[str, str]:
    return shared.scope_of_owner(key.owner_id), key.prefix


def _counter(key: ApiKey, budget: Budget) -> str:
    scope = shared.scope_of_owner(key.owner_id) if budget.is_owners else key.prefix
    return f"{scope}:{budget.unit}:{budget.period}"


def _whole(budget: Budget, use: Use) -> int:
    return use.tokens if budget.unit == "tokens" else int(use.cost * MICRO)


def _most_use(call: Call, upstream: Upstream, *, has_money: bool) -> Use:
    """As much as the call may use: its input by size, and the output that it asks for."""
    earlier = call.earlier.size if call.earlier else 0
    read = (len(call.told) + earlier) // BYTES_PER_TOKEN + 1
    written = 0
    if call.address.kind == "chat":
        named = [int(most) for most in _MOST_OUTPUT.findall(call.told)]
        written = max(named, default=settings.PARLEY_RELAY_RESERVED_TOKENS)
    usage = Usage(input_tokens=read, output_tokens=written)
    cost = Decimal(0)
    if has_money:
        cost = cost_of(usage, provider=upstream.provider.name, model=upstream.model, has_money_budget=True)
    return Use(0, read + written, cost)


# Refusals.


def used_up(budget: Budget) -> Refusal:
    whose = "The owner of this key is over their" if budget.is_owners else "This key is over its"
    return over(budget.words, budget.wait(), ("x-should-retry", "false"), whose=whose)


def busy(budget: Budget) -> Refusal:
    whose = "of the owner of this key" if budget.is_owners else "of this key"
    words = (
        f"Running calls {whose} may use up the rest of the limit of {budget.words}. Try again when one of them has "
        "ended, or ask for fewer output tokens."
    )
    return Refusal(words, "rate_limit", headers=(("retry-after", "1"),))


def over(limit: str, wait: int, *more: tuple[str, str], whose: str = "This key is over its") -> Refusal:
    words = f"{whose} limit of {limit}. Try again in {_in_words(wait)}."
    return Refusal(words, "rate_limit", headers=(("retry-after", str(wait)), *more))


def _in_words(wait: int) -> str:
    """For people, and never too early; programs read `retry-after`."""
    for seconds, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if wait >= 2 * seconds:
            return f"{math.ceil(wait / seconds)} {unit}"
    return f"{wait} seconds" if wait > 1 else "a second"


def _tomorrow() -> datetime:
    return datetime.combine(today() + timedelta(days=1), clock.min, tzinfo=_zone())


def _next_month() -> datetime:
    first = (today().replace(day=1) + timedelta(days=32)).replace(day=1)
    return datetime.combine(first, clock.min, tzinfo=_zone())


def _zone() -> ZoneInfo:
    return ZoneInfo(settings.TIME_ZONE)
