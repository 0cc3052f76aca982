"""Rate limits of API keys: requests and tokens in a minute, calls at once; and the budgets of a day and a month.

What was used is known to this process (`accounts`), so no call waits for the database. With Redis the minute and the
calls at once are counted there, so that they hold to the call. Tokens of a minute are known when a call has ended: a
key that has a few left may make one more call. Budgets are reserved before a call is sent (`budgets`).
"""

from __future__ import annotations

import time

from history.models import ApiKey
from relay.gateway import accounts, budgets, shared
from relay.gateway.accounts import Account
from relay.gateway.budgets import over
from relay.gateway.calls import Call
from relay.gateway.refusals import Refusal


class admitted:  # noqa: N801 - reads as a clause: async with admitted(call)
    """Around a call: counts it in, or refuses it; counts it out, however it ends."""

    __slots__ = ("account", "call", "is_shared")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_shared = False

    async def __aenter__(self) -> None:
        call = self.call
        if accounts.owner_of(call.key.owner_id).must_be_read:
            await accounts.load_owner(call.key.owner_id)
        self.account = accounts.enter(call.key, call.name)
        if self.account.is_limited:
            call.is_limited = True
            await self._check(call.key, self.account)
            accounts.enter(call.key, call.name, is_checked=True)

    async def __aexit__(self, *_: object) -> None:
        accounts.leave(self.account, self.call.name)
        budgets.settle(self.call)
        if self.is_shared:
            await shared.leave(self.call.key.prefix, self.call.name)

    async def _check(self, key: ApiKey, account: Account) -> None:
        if not account.is_loaded:
            await accounts.load(key.pk)
        budgets.check_used_up(key)
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
