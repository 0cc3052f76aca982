"""Daily and monthly budgets of API keys and owners: read, reserve and settle (docs/relay.md, Budgets)."""

import math
import time
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from history.entries import Usage
from history.models import ApiKey
from relay.usage import redis_counters
from relay.usage.accounts import Account
from relay.usage.counters import counters, key_account, owner_account
from relay.usage.prices import NO_USE, Use, cost_of, start_of_next_month, start_of_tomorrow, today

Unit = Literal["tokens", "cost"]
PoolName = Literal["owner_day", "key_day", "key_month"]
_MICRO = 1_000_000


class Payer(NamedTuple):
    owner: int
    key: ApiKey | None = None

    @property
    def accounts(self) -> list[Account]:
        """The owner's comes first. The caller holds the lock of the counters."""
        owner = owner_account(self.owner)
        return [owner] if self.key is None else [owner, key_account(self.key.id)]

    @property
    def scopes(self) -> tuple[str, ...]:
        """Their names in Redis."""
        owner = redis_counters.scope_of_owner(self.owner)
        return (owner,) if self.key is None else (owner, self.key.prefix)


def payer_of(key: ApiKey) -> Payer:
    return Payer(key.owner_id, key)


class Pool(NamedTuple):
    """`known` was written by all processes; `unwritten` and `reserved` are of this one; Redis is adding `settling`."""

    known: Use
    unwritten: Use
    reserved: Use
    is_idle: bool
    settling: Use = NO_USE

    @property
    def used(self) -> Use:
        return self.known + self.unwritten


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimit:
    pool: PoolName
    unit: Unit
    limit: Decimal

    @property
    def text(self) -> str:
        amount = f"{self.limit.normalize():f}"
        period = "month" if self.is_monthly else "day"
        return f"{amount} tokens per {period}" if self.unit == "tokens" else f"${amount} per {period}"

    @property
    def is_owners(self) -> bool:
        return self.pool == "owner_day"

    @property
    def is_monthly(self) -> bool:
        return self.pool == "key_month"

    @property
    def resets_at(self) -> datetime:
        return start_of_next_month() if self.is_monthly else start_of_tomorrow()

    @property
    def seconds_to_reset(self) -> int:
        return max(1, math.ceil(self.resets_at.timestamp() - time.time()))

    @property
    def most(self) -> int:
        return int(self.limit if self.unit == "tokens" else self.limit * _MICRO)

    def amount_of(self, use: Use) -> int:
        """In tokens or millionths of a dollar."""
        return use.tokens if self.unit == "tokens" else int(use.cost * _MICRO)

    def counter(self, payer: Payer) -> str:
        """The name of its counter in Redis."""
        period = f"{today():%Y-%m}" if self.is_monthly else today().isoformat()
        return f"{payer.scopes[0 if self.is_owners else -1]}:{self.unit}:{period}"

    def is_used_up(self, pool: Pool) -> bool:
        return self.amount_of(pool.used) >= self.most

    def has_room(self, pool: Pool, amount: Use, *, processes: int) -> bool:
        """Whether the amount fits into this process's part of what is left, or the call would be the only one."""
        ours = self.amount_of(pool.unwritten + pool.reserved + amount)
        if ours * processes <= self.most - self.amount_of(pool.known):
            return True
        return pool.is_idle and (processes == 1 or not self.amount_of(pool.unwritten))

    def meter(self, payer: Payer, pool: Pool, amount: Use) -> redis_counters.Meter:
        """What Redis is being informed of is left out, because it would count twice."""
        return redis_counters.Meter(
            counter=self.counter(payer),
            scope=1 if self.is_owners else 2,
            unit=1 if self.unit == "tokens" else 2,
            used=self.amount_of(pool.used) - self.amount_of(pool.settling),
            limit=self.most,
            amount=self.amount_of(amount),
        )


class BudgetRefusal(NamedTuple):
    """The budget into which a call does not fit: used up, or reserved by running calls."""

    budget: BudgetLimit
    is_used_up: bool


def budgets_of(payer: Payer) -> list[BudgetLimit]:
    key, limits = payer.key, owner_account(payer.owner).limits
    found: list[tuple[PoolName, Unit, int | Decimal | None]] = []
    if key is not None:
        found += [("key_day", "tokens", key.tokens_per_day), ("key_day", "cost", key.cost_per_day)]
        found += [("key_month", "tokens", key.tokens_per_month), ("key_month", "cost", key.cost_per_month)]
    found += [("owner_day", "tokens", limits.tokens_per_day or None)]
    found += [("owner_day", "cost", limits.cost_per_day or None)]
    return [BudgetLimit(pool=pool, unit=unit, limit=Decimal(limit)) for pool, unit, limit in found if limit is not None]


def has_money(budgets: list[BudgetLimit]) -> bool:
    return any(budget.unit == "cost" for budget in budgets)


def pools(payer: Payer, *, name: str = "") -> dict[PoolName, Pool]:
    """What the key has used today and this month, and its owner today; without the reservation of the call `name`."""
    with counters().lock:
        owner, *keys = payer.accounts
        found: dict[PoolName, Pool] = {"owner_day": _pool(owner, name)}
        for key in keys:
            found["key_day"] = day = _pool(key, name)
            found["key_month"] = day._replace(known=key.month_before + day.known)
        return found


def _pool(account: Account, name: str) -> Pool:
    others = [use for call, use in account.reserved.items() if call != name]
    known, unwritten = account.day.known, account.day.unwritten
    return Pool(known, unwritten, sum(others, NO_USE), is_idle=not others, settling=account.settling)


def find_used_up(payer: Payer) -> BudgetLimit | None:
    budgets = budgets_of(payer)
    known = pools(payer) if budgets else {}
    return next((budget for budget in budgets if budget.is_used_up(known[budget.pool])), None)


def estimate_most_use(budgets: list[BudgetLimit], *, read: int, written: int, provider: str, model: str) -> Use:
    cost = Decimal(0)
    if has_money(budgets):
        usage = Usage(input_tokens=read, output_tokens=written)
        cost = cost_of(usage, provider=provider, model=model, has_money_budget=True)
    return Use(0, read + written, cost)


async def reserve(payer: Payer, name: str, amount: Use, budgets: list[BudgetLimit]) -> BudgetRefusal | None:
    """Reserve the amount for the call `name` unless a budget objects. Also here: Redis may not know all calls."""
    verdict = None
    if redis_counters.is_enabled():
        known = pools(payer, name=name)
        meters = [budget.meter(payer, known[budget.pool], amount) for budget in budgets]
        reserved = (amount.tokens, int(amount.cost * _MICRO))
        verdict = await redis_counters.reserve(name, payer.scopes, reserved, meters)
        if verdict is not None and verdict[0] >= 0:
            return BudgetRefusal(budgets[verdict[0]], is_used_up=verdict[1])
    refusal = _reserve_here(payer, name, amount, budgets, is_shared=verdict is not None)
    if refusal is not None and redis_counters.is_enabled():
        # Also if it did not answer in time: it may have reserved all the same.
        redis_counters.settle(name, payer.scopes, [])
    return refusal


def _reserve_here(
    payer: Payer, name: str, amount: Use, budgets: list[BudgetLimit], *, is_shared: bool
) -> BudgetRefusal | None:
    """`is_shared`: Redis has agreed for all processes, so this one is not limited to its part."""
    with counters().lock:
        known, processes = pools(payer, name=name), 1 if is_shared else counters().processes
        for budget in budgets:
            pool = known[budget.pool]
            is_used_up = budget.is_used_up(pool)
            if is_used_up or not budget.has_room(pool, amount, processes=processes):
                return BudgetRefusal(budget, is_used_up)
        for account in payer.accounts:
            account.reserved[name] = amount
    return None


def settle(payer: Payer, name: str, spent: Use) -> None:
    """Release what a call reserved, once what it used is counted here. May be called twice."""
    if not release(payer, name) or not redis_counters.is_enabled():
        return
    _note_settling(payer, spent)
    task = redis_counters.settle(name, payer.scopes, _counted(payer, spent))
    task.add_done_callback(lambda _: _note_settling(payer, Use(0, -spent.tokens, -spent.cost)))


async def settle_in_redis(payer: Payer, name: str, spent: Use) -> None:
    """The same in Redis alone, before the use is written to the database: no process counts it twice then."""
    if redis_counters.is_enabled():
        await redis_counters.settle(name, payer.scopes, _counted(payer, spent))


def release(payer: Payer, name: str) -> bool:
    """Drop the reservation of a call in this process. False if it had none."""
    with counters().lock:
        removed = [account.reserved.pop(name, None) for account in payer.accounts]
    return removed[0] is not None


def _note_settling(payer: Payer, change: Use) -> None:
    """Redis is being informed of what a call used, or has confirmed it: meanwhile this process does not report it."""
    with counters().lock:
        for account in payer.accounts:
            account.settling += Use(0, change.tokens, change.cost)


def _counted(payer: Payer, spent: Use) -> list[tuple[str, int]]:
    return [(budget.counter(payer), budget.amount_of(spent)) for budget in budgets_of(payer)]
