"""Reservations from a person's daily budget for the calls that chats make to models.

Every call reserves before it is sent and settles when its answer is stored, with the mechanism of relayed calls
(`relay.usage.budgets`). A call that does not fit beside running ones waits until one of them has ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from uuid import uuid4

from django.conf import settings

from history.context.tokens import estimate_parts
from history.entries import ModelOutput, Usage
from relay.errors import BudgetReserved, OverAllowance
from relay.providers.base import Route
from relay.usage import allowances, budgets, counters
from relay.usage.allowances import Limits
from relay.usage.amounts import NO_USE, Use
from relay.usage.budgets import BudgetLimit, Payer
from relay.usage.prices import cost_of

# How long a call waits for running ones, and how often it tries.
WAIT_SECONDS, TRY_EVERY_SECONDS = 60.0, 0.2


@dataclass(slots=True)
class Reservation:
    """What one call has reserved; nothing where the person has no budget."""

    payer: Payer
    route: Route
    read: int
    budgets: list[BudgetLimit] = field(default_factory=list)
    name: str = field(default_factory=lambda: str(uuid4()))

    def price(self, usage: Usage) -> Decimal:
        has_money = budgets.has_money(self.budgets)
        name, model = self.route.provider.name, self.route.model.name
        return cost_of(usage, provider=name, model=model, has_money_budget=has_money)

    def use_of(self, output: ModelOutput, *, is_done: bool, is_answered: bool) -> Use:
        """What counts for an answer: the provider's numbers, and our estimate where they did not come, or not to the
        end. A call that was refused before any answer counts nothing."""
        usage = output.usage
        if is_answered and (usage is None or not is_done):
            known = usage or Usage(input_tokens=self.read)
            usage = replace(known, output_tokens=max(known.output_tokens, estimate_parts(output.parts)))
        if usage is None:
            return NO_USE
        return Use(0, usage.input_tokens + usage.output_tokens, self.price(usage))

    @asynccontextmanager
    async def settling(self, spent: Use) -> AsyncIterator[None]:
        """Around the transaction that stores the answer and what it used."""
        if not self.budgets:
            yield
            return
        owner, counted = self.payer.owner, NO_USE
        await budgets.settle_in_redis(self.payer, self.name, spent)
        counters.begin_writing_chat(owner)
        try:
            yield
            counted = spent
        finally:
            counters.end_writing_chat(owner, counted)
            budgets.release(self.payer, self.name)

    def release(self) -> None:
        """Give back what was reserved, where nothing was stored. May be called twice."""
        if self.budgets:
            budgets.settle(self.payer, self.name, NO_USE)


async def reserve(owner: int, limits: Limits, *, route: Route, read: int, written: int | None) -> Reservation:
    """Reserve what a call may use at most; `read` is its input in tokens, `written` the most that it may write.

    Raises OverAllowance where a budget is used up, BudgetReserved where running calls may use up the rest of it.
    """
    payer = Payer(owner)
    reservation = Reservation(payer, route, read)
    counters.set_limits(owner, limits)
    if not limits.tokens_per_day and not limits.cost_per_day:
        return reservation
    if counters.owner_account(owner).is_stale:
        await counters.load_owner(owner)
    reservation.budgets = found = budgets.budgets_of(payer)
    name, model = route.provider.name, route.model.name
    most = settings.PARLEY_RELAY_RESERVED_TOKENS if written is None else written
    amount = budgets.estimate_most_use(found, read=read, written=most, provider=name, model=model)
    until = time.monotonic() + WAIT_SECONDS
    while (objection := await budgets.reserve(payer, reservation.name, amount, found)) is not None:
        what = allowances.TOKENS if objection.budget.unit == "tokens" else allowances.COST
        if objection.is_used_up:
            raise OverAllowance(what=what, until=objection.budget.resets_at)
        if time.monotonic() >= until:
            raise BudgetReserved(what=what)
        await asyncio.sleep(TRY_EVERY_SECONDS)
    return reservation
