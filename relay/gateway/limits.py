"""What a key may use: requests and tokens in a minute, calls at once, tokens and money in a day and a month.

What was used is known to this process (`accounts`), so a call waits for nobody. With Redis the minute and the calls at
once are counted there instead, so that they hold to the call. Tokens and cost are known when a call has ended: whoever
has a little left may make one more.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from zoneinfo import ZoneInfo

from django.conf import settings

from history.models import ApiKey
from relay.gateway import accounts, shared
from relay.gateway.accounts import Account
from relay.gateway.calls import Call
from relay.gateway.refusals import Refusal
from relay.gateway.uses import today


class admitted:  # noqa: N801 - reads as a clause: async with admitted(call)
    """Around a call: counts it in, or refuses it; counts it out, however it ends."""

    __slots__ = ("account", "call", "is_shared")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_shared = False

    async def __aenter__(self) -> None:
        call = self.call
        self.account = accounts.enter(call.key, call.name)
        if self.account.is_limited:
            call.is_limited = True
            await self._check(call.key, self.account)
            accounts.enter(call.key, call.name, is_checked=True)

    async def __aexit__(self, *_: object) -> None:
        accounts.leave(self.account, self.call.name)
        if self.is_shared:
            await shared.leave(self.call.key.prefix, self.call.name)

    async def _check(self, key: ApiKey, account: Account) -> None:
        if not account.is_loaded:
            await accounts.load(key.pk)
        _check_budget(key, account)
        # Also where it does not answer in time: it may have counted all the same, or be told later (`keep_alive`).
        self.is_shared = shared.is_there()
        counted = await shared.enter(key.prefix, self.call.name) if self.is_shared else None
        try:
            _check_pace(key, counted or _counted_here(account))
        except Refusal:
            if self.is_shared:
                await shared.leave(key.prefix, self.call.name, refused=counted)
            raise


def _counted_here(account: Account) -> shared.Counted:
    used = account.minute.used
    running = len(account.running) + account.elsewhere
    return shared.Counted(minute=account.minute.period, requests=used.requests, tokens=used.tokens, running=running)


def _check_pace(key: ApiKey, counted: shared.Counted) -> None:
    wait = 60 - int(time.time()) % 60
    if key.requests_per_minute is not None and counted.requests >= key.requests_per_minute:
        raise over(f"{key.requests_per_minute} requests per minute", wait)
    if key.tokens_per_minute is not None and counted.tokens >= key.tokens_per_minute:
        raise over(f"{key.tokens_per_minute} tokens per minute", wait)
    if key.concurrent_streams is not None and counted.running >= key.concurrent_streams:
        raise over(f"{key.concurrent_streams} calls at once", 1)


def _check_budget(key: ApiKey, account: Account) -> None:
    of_day = account.day.used
    of_month = account.month_before + of_day
    for limit, used, words, until in (
        (key.tokens_per_day, of_day.tokens, "{} tokens per day", _tomorrow),
        (key.cost_per_day, of_day.cost, "${} per day", _tomorrow),
        (key.tokens_per_month, of_month.tokens, "{} tokens per month", _next_month),
        (key.cost_per_month, of_month.cost, "${} per month", _next_month),
    ):
        if limit is not None and used >= limit:
            wait = max(1, math.ceil(until().timestamp() - time.time()))
            raise over(words.format(f"{Decimal(limit).normalize():f}"), wait, ("x-should-retry", "false"))


def over(limit: str, wait: int, *more: tuple[str, str]) -> Refusal:
    words = f"This key is over its limit of {limit}. It goes on in {_in_words(wait)}."
    return Refusal(words, "rate_limit", headers=(("retry-after", str(wait)), *more))


def _in_words(wait: int) -> str:
    """As people say it, and never too early; programs read `retry-after`."""
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
