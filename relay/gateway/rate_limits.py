"""Rate limits of API keys (requests and tokens per minute, concurrent calls) and refusals by budgets.

This process knows what was used (`relay.usage.counters`), so no call waits for the database. With Redis, the minute and
concurrent calls are counted there exactly. Tokens are known when a call has ended: a key with a few left may make one
more call.
"""

import math
import time
from decimal import Decimal

from django.conf import settings

from history.models import ApiKey
from relay.gateway.call.bodies import most_output_tokens
from relay.gateway.call.calls import Call
from relay.gateway.call.errors import Refusal
from relay.gateway.replies import BYTES_PER_TOKEN
from relay.gateway.routes import Upstream
from relay.runtime.event_loop import parse_apart
from relay.usage import budgets, counters, redis_counters
from relay.usage.accounts import KeyAccount
from relay.usage.budgets import BudgetLimit, payer_of
from relay.usage.prices import Use
from relay.usage.redis_counters import RateCounts


class Admission:
    """Context of a call: counts it in or refuses it, and counts it out however it ends."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_shared = False

    async def __aenter__(self) -> None:
        call = self.call
        if counters.owner_account(call.key.owner_id).is_stale:
            await counters.load_owner(call.key.owner_id)
        self.account = counters.enter(call.key, call.name)
        if self.account.is_limited:
            call.is_limited = True
            await self._check(call.key, self.account)
            counters.enter(call.key, call.name, is_checked=True)

    async def __aexit__(self, *_: object) -> None:
        counters.leave(self.account, self.call.name)
        settle(self.call)
        if self.is_shared:
            await redis_counters.leave(self.call.key.prefix, self.call.name)

    async def _check(self, key: ApiKey, account: KeyAccount) -> None:
        if not account.is_loaded:
            await counters.load_key(key.pk)
        if used_up := budgets.find_used_up(payer_of(key)):
            raise _used_up(used_up)
        # Also if it does not answer in time: it may have counted all the same, or be informed later (`keep_alive`).
        self.is_shared = redis_counters.is_enabled()
        counted = await redis_counters.enter(key.prefix, self.call.name) if self.is_shared else None
        try:
            minute, used = account.minute.period, account.minute.used
            here = RateCounts(minute, used.requests, used.tokens, running=len(account.running) + account.elsewhere)
            _check_pace(key, counted or here)
        except Refusal:
            if self.is_shared:
                await redis_counters.leave(key.prefix, self.call.name, refused=counted)
            raise


def _check_pace(key: ApiKey, counted: RateCounts) -> None:
    wait = 60 - int(time.time()) % 60
    if key.requests_per_minute is not None and counted.requests >= key.requests_per_minute:
        raise over_limit(f"{key.requests_per_minute} requests per minute", wait)
    if key.tokens_per_minute is not None and counted.tokens >= key.tokens_per_minute:
        raise over_limit(f"{key.tokens_per_minute} tokens per minute", wait)
    if key.concurrent_streams is not None and counted.running >= key.concurrent_streams:
        raise over_limit(f"{key.concurrent_streams} concurrent calls", 1)


async def reserve(call: Call, upstream: Upstream) -> None:
    """Reserve what the call may use at most. Raises a Refusal."""
    payer = payer_of(call.key)
    found = budgets.budgets_of(payer) if call.is_limited and call.address.kind != "count" else []
    if not found:
        return
    amount = await _estimate_most_use(call, upstream, found)
    if upstream.is_plan:
        amount = amount._replace(cost=Decimal(0))
    refusal = await budgets.reserve(payer, call.name, amount, found)
    if refusal is not None:
        raise (_used_up if refusal.is_used_up else _busy)(refusal.budget)


def settle(call: Call) -> None:
    """Release what the call reserved, once what it used is counted. May be called twice."""
    if call.is_limited:
        budgets.settle(payer_of(call.key), call.name, call.spent)


def has_money_budget(call: Call) -> bool:
    return call.is_limited and budgets.has_money(budgets.budgets_of(payer_of(call.key)))


async def _estimate_most_use(call: Call, upstream: Upstream, found: list[BudgetLimit]) -> Use:
    earlier, written = call.earlier.size if call.earlier else 0, 0
    if call.address.kind == "chat":
        asked = await parse_apart(len(call.body), most_output_tokens, call.body)
        written = settings.PARLEY_RELAY_RESERVED_TOKENS if asked is None else asked
    return budgets.estimate_most_use(
        found,
        read=(len(call.body) + earlier) // BYTES_PER_TOKEN + 1,
        written=written,
        provider=upstream.provider.name,
        model=upstream.model,
    )


def _used_up(budget: BudgetLimit) -> Refusal:
    whose = "The owner of this key has reached the" if budget.is_owners else "This key has reached its"
    return over_limit(budget.text, budget.seconds_to_reset, ("x-should-retry", "false"), whose=whose)


def _busy(budget: BudgetLimit) -> Refusal:
    whose = "of the owner of this key" if budget.is_owners else "of this key"
    text = (
        f"Running calls {whose} may use up the rest of the limit of {budget.text}. Try again when one of them has "
        "ended, or ask for fewer output tokens."
    )
    return Refusal(text, "rate_limit", headers=(("retry-after", "1"),))


def over_limit(limit: str, wait: int, *more: tuple[str, str], whose: str = "This key has reached its") -> Refusal:
    text = f"{whose} limit of {limit}. Try again in {_in_text(wait)}."
    return Refusal(text, "rate_limit", headers=(("retry-after", str(wait)), *more))


def _in_text(wait: int) -> str:
    """Rounded up; programs read `retry-after`."""
    for seconds, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if wait >= 2 * seconds:
            return f"{math.ceil(wait / seconds)} {unit}"
    return f"{wait} seconds" if wait > 1 else "a second"
