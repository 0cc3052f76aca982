"""Daily and monthly budgets of API keys and of people: how they are counted, reserved and settled.

Only the end of a call tells what it used, so each call reserves before it is sent what it may use at most: its input by
size, and as much output as it asks for (`PARLEY_RELAY_RESERVED_TOKENS` where it names no maximum). A call passes if it
fits beside what was used and what running calls have reserved. One that does not fit passes alone, while no other call
runs, as long as anything is left: so a budget is exceeded by at most one answer. That holds within a process, and with
Redis across all of them. Without Redis each process has an equal part of what is left, and the excess is at most one
answer per process. Relayed calls (`relay.gateway.limits.rate_limits`) and chats (`relay.agents.spending`) use the same
functions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings

from history.entries import Usage
from history.models import ApiKey
from relay.gateway.limits import redis_limits, usage_counters
from relay.gateway.limits.usage_store import today
from relay.usage.amounts import NO_USE, Use
from relay.usage.prices import cost_of

Unit = Literal["tokens", "cost"]
MICRO = Decimal(1_000_000)


class Payer(NamedTuple):
    """Who pays for a call: a person, and the API key that was used, if any."""

    owner: int
    key: ApiKey | None = None


def payer_of(key: ApiKey) -> Payer:
    return Payer(key.owner_id, key)


class Pool(NamedTuple):
    """One budget as this process sees it. `known` was written by all processes, `unwritten` is ours and not yet
    written, `open` is reserved by running calls of ours, `processes` is how many processes share what is left,
    `settling` is the part of what was used that Redis is just being told of."""

    known: Use
    unwritten: Use
    open: Use
    is_idle: bool
    processes: int
    settling: Use = NO_USE

    @property
    def used(self) -> Use:
        return self.known + self.unwritten


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimit:
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

    def begins_anew(self) -> datetime:
        return _next_month() if self.is_month else _tomorrow()

    def wait(self) -> int:
        """Seconds until it begins anew."""
        return max(1, math.ceil(self.begins_anew().timestamp() - time.time()))

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


class Objection(NamedTuple):
    """The budget into which a call does not fit: used up, or reserved by running calls."""

    budget: BudgetLimit
    is_used_up: bool


def budgets_of(payer: Payer) -> list[BudgetLimit]:
    return list(_budgets_of(payer))


def _budgets_of(payer: Payer) -> Iterator[BudgetLimit]:
    key, limits = payer.key, usage_counters.owner_of(payer.owner).limits
    for pool, unit, limit, is_month in (
        ("key_day", "tokens", key and key.tokens_per_day, False),
        ("key_day", "cost", key and key.cost_per_day, False),
        ("key_month", "tokens", key and key.tokens_per_month, True),
        ("key_month", "cost", key and key.cost_per_month, True),
        ("owner_day", "tokens", limits.tokens_per_day or None, False),
        ("owner_day", "cost", limits.cost_per_day or None, False),
    ):
        if limit is not None:
            yield BudgetLimit(pool=pool, unit=unit, limit=Decimal(limit), is_month=is_month)  # type: ignore[arg-type]


def has_money(budgets: list[BudgetLimit]) -> bool:
    return any(budget.unit == "cost" for budget in budgets)


def most_use(budgets: list[BudgetLimit], *, read: int, written: int, provider: str, model: str) -> Use:
    """What a call may use at most, with its cost where a budget is in money."""
    cost = Decimal(0)
    if has_money(budgets):
        usage = Usage(input_tokens=read, output_tokens=written)
        cost = cost_of(usage, provider=provider, model=model, has_money_budget=True)
    return Use(0, read + written, cost)


def pools(payer: Payer, *, name: str = "") -> dict[str, Pool]:
    """What the key has used today and this month, and its owner today; without the reservation of the call `name`."""
    with usage_counters.lock:
        return _pools(payer, name)


def _pools(payer: Payer, name: str) -> dict[str, Pool]:
    processes = usage_counters.processes()
    owner = usage_counters.owner_of(payer.owner, is_locked=True)
    unwritten = usage_counters.unwritten_of(payer.owner)
    found = {"owner_day": Pool(owner.known, unwritten, *_open(owner.open, name), processes, owner.settling)}
    if payer.key is not None:
        account = usage_counters.account_of(payer.key.id, is_locked=True)
        day, (open_, is_idle) = account.day, _open(account.open, name)
        rest = (day.writing + day.new, open_, is_idle, processes, account.settling)
        found["key_day"] = Pool(day.known, *rest)
        found["key_month"] = Pool(account.month_before + day.known, *rest)
    return found


def _open(reserved: dict[str, Use], name: str) -> tuple[Use, bool]:
    others = [use for call, use in reserved.items() if call != name]
    return sum(others, NO_USE), not others


def find_used_up(payer: Payer) -> BudgetLimit | None:
    """The first budget of which nothing is left."""
    found = budgets_of(payer)
    known = pools(payer) if found else {}
    return next((budget for budget in found if budget.is_used_up(known[budget.pool])), None)


async def reserve(payer: Payer, name: str, amount: Use, budgets: list[BudgetLimit]) -> Objection | None:
    """Reserve the amount for the call `name` unless a budget objects.

    Redis decides for all processes, and this process for its own calls: Redis may not know all of them, where it did
    not answer in time.
    """
    is_shared = False
    if redis_limits.is_there():
        objection, is_shared = await _reserve_in_redis(payer, name, amount, budgets)
        if objection is not None:
            return objection
    objection = _reserve_here(payer, name, amount, budgets, is_shared=is_shared)
    if objection is not None and redis_limits.is_there():
        # Also where it did not answer in time: it may have reserved all the same.
        redis_limits.settle(name, _scopes(payer), [])
    return objection


def settle(payer: Payer, name: str, spent: Use) -> None:
    """A relayed call has ended and what it used is counted here: what it reserved is free. May be called twice."""
    if not release(payer, name) or not redis_limits.is_there():
        return
    _note_settling(payer, spent)
    redis_limits.settle(
        name,
        _scopes(payer),
        _counters(payer, spent),
        when_done=lambda: _note_settling(payer, Use(0, -spent.tokens, -spent.cost)),
    )


async def settle_in_redis(payer: Payer, name: str, spent: Use) -> None:
    """The same for Redis alone, before the use is written to the database: no process counts it twice then."""
    if redis_limits.is_there():
        await redis_limits.settled(name, _scopes(payer), _counters(payer, spent))


def release(payer: Payer, name: str) -> bool:
    """Forget what a call has reserved in this process. False where it had reserved nothing."""
    with usage_counters.lock:
        if payer.key is not None:
            usage_counters.account_of(payer.key.id, is_locked=True).open.pop(name, None)
        return usage_counters.owner_of(payer.owner, is_locked=True).open.pop(name, None) is not None


def _note_settling(payer: Payer, change: Use) -> None:
    """Redis is being told of what a call used, or knows it: until then this process leaves it to that message."""
    change = Use(0, change.tokens, change.cost)
    with usage_counters.lock:
        if payer.key is not None:
            usage_counters.account_of(payer.key.id, is_locked=True).settling += change
        usage_counters.owner_of(payer.owner, is_locked=True).settling += change


def _reserve_here(
    payer: Payer, name: str, amount: Use, budgets: list[BudgetLimit], *, is_shared: bool
) -> Objection | None:
    """`is_shared`: Redis has agreed for all processes, so this one needs not keep to its part."""
    with usage_counters.lock:
        known = _pools(payer, name)
        for budget in budgets:
            pool = known[budget.pool]._replace(processes=1) if is_shared else known[budget.pool]
            if budget.is_used_up(pool):
                return Objection(budget, is_used_up=True)
            if not budget.has_room(pool, amount):
                return Objection(budget, is_used_up=False)
        if payer.key is not None:
            usage_counters.account_of(payer.key.id, is_locked=True).open[name] = amount
        usage_counters.owner_of(payer.owner, is_locked=True).open[name] = amount
    return None


async def _reserve_in_redis(
    payer: Payer, name: str, amount: Use, budgets: list[BudgetLimit]
) -> tuple[Objection | None, bool]:
    """What Redis objects to, and whether it has answered."""
    known = pools(payer, name=name)
    meters = [
        redis_limits.Meter(
            counter=_counter(payer, budget),
            is_owners=budget.is_owners,
            is_cost=budget.unit == "cost",
            # What Redis is just being told of would count twice.
            used=_whole(budget, known[budget.pool].used) - _whole(budget, known[budget.pool].settling),
            limit=int(budget.limit if budget.unit == "tokens" else budget.limit * MICRO),
            amount=_whole(budget, amount),
        )
        for budget in budgets
    ]
    held = (amount.tokens, int(amount.cost * MICRO))
    verdict = await redis_limits.reserve(name, _scopes(payer), held, meters)
    if verdict is None:
        return None, False
    place, is_used_up = verdict
    return (Objection(budgets[place], is_used_up) if place >= 0 else None), True


def _scopes(payer: Payer) -> tuple[str, ...]:
    owner = redis_limits.scope_of_owner(payer.owner)
    return (owner,) if payer.key is None else (owner, payer.key.prefix)


def _counters(payer: Payer, spent: Use) -> list[tuple[str, int]]:
    return [(_counter(payer, budget), _whole(budget, spent)) for budget in budgets_of(payer)]


def _counter(payer: Payer, budget: BudgetLimit) -> str:
    is_key = payer.key is not None and not budget.is_owners
    scope = payer.key.prefix if is_key else redis_limits.scope_of_owner(payer.owner)  # type: ignore[union-attr]
    return f"{scope}:{budget.unit}:{budget.period}"


def _whole(budget: BudgetLimit, use: Use) -> int:
    return use.tokens if budget.unit == "tokens" else int(use.cost * MICRO)


def _tomorrow() -> datetime:
    return datetime.combine(today() + timedelta(days=1), clock.min, tzinfo=_zone())


def _next_month() -> datetime:
    first = (today().replace(day=1) + timedelta(days=32)).replace(day=1)
    return datetime.combine(first, clock.min, tzinfo=_zone())


def _zone() -> ZoneInfo:
    return ZoneInfo(settings.TIME_ZONE)
