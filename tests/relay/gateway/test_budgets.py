"""Budgets of keys and of their owners: reserved before a call is sent, settled when it has ended."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import redis
from django.test import Client

from history.access import keys
from history.db.process_state import process_state
from history.models import ApiKey
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.errors import OverAllowance
from relay.gateway import rate_limits
from relay.models import Allowance, KeyUse, Spending
from relay.runtime import event_loop
from relay.usage import allowances, budgets, counters, prices, redis_counters, tables
from relay.usage.budgets import BudgetLimit, Pool
from relay.usage.prices import Price, Use
from tests.clients import HI_BODY, RunningRelay, open_reply, send_request
from tests.relay.gateway.test_limits import CHAT, TOKENS, key_with, until_counted
from tests.relay.gateway.test_limits_shared import done
from tests.servers.processes import free_port, wait_for
from tests.vendors import Vendors, says

# One person, one budget.


@pytest.mark.parametrize("by", ["setting", "allowance"])
@pytest.mark.parametrize("end", ["revoked", "deleted", "kept"])
def test_budget_binds_all_keys_of_one_person(relay: RunningRelay, ada: User, settings: Any, by: str, end: str) -> None:
    if by == "setting":
        settings.PARLEY_CHAT_TOKENS_PER_DAY = TOKENS
    else:
        Allowance.objects.create(user=ada, tokens_per_day=TOKENS)
    first = key_with(ada)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=first).status == 200
    until_counted(relay, first, TOKENS)
    counters.sync()
    if end == "revoked":
        keys.revoke(ApiKey.objects.get(), actor=ada)
    elif end == "deleted":
        ApiKey.objects.all().delete()
    answered = send_request(relay, CHAT, HI_BODY, x_api_key=key_with(ada))
    assert (answered.status, answered.headers["x-should-retry"]) == (429, "false")
    told = answered.json["error"]["message"]
    assert told.startswith(f"The owner of this key has reached the limit of {TOKENS} tokens per day. Try again in ")


def test_next_key_made_on_the_page_has_no_budget_of_its_own(
    relay: RunningRelay, client: Client, ada: User, vendors: Vendors, settings: Any
) -> None:
    """Make a key, use the budget up, revoke the key, make another."""
    settings.PARLEY_CHAT_TOKENS_PER_DAY = TOKENS
    client.force_login(ada)

    def made_on_the_page() -> str:
        page = client.post("/keys/", {"name": "laptop", "recording": "full", "days": "30", "scopes": ["relay"]})
        secret: str = re.findall(r"parley_\w{20,}", page.content.decode())[0]
        return secret

    first = made_on_the_page()
    assert send_request(relay, CHAT, HI_BODY, x_api_key=first).status == 200
    wait_for(
        lambda: send_request(relay, CHAT, HI_BODY, x_api_key=first).status == 429, seconds=10, what="the budget used up"
    )
    assert client.post(f"/keys/{ApiKey.objects.get().prefix}/revoke/").status_code == 302
    calls = len(vendors.requests)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=made_on_the_page()).status == 429
    assert len(vendors.requests) == calls


def test_budget_is_not_shared_with_other_people(relay: RunningRelay, ada: User, bob: User, settings: Any) -> None:
    settings.PARLEY_CHAT_TOKENS_PER_DAY = TOKENS
    first = key_with(ada)
    send_request(relay, CHAT, HI_BODY, x_api_key=first)
    until_counted(relay, first, TOKENS)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key_with(bob)).status == 200


def test_chats_and_keys_count_against_one_budget(relay: RunningRelay, ada: User, settings: Any) -> None:
    key = key_with(ada)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200
    relay.ended()
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    settings.PARLEY_CHAT_TOKENS_PER_DAY = TOKENS
    with pytest.raises(OverAllowance):
        allowances.check_budget(ada)
    settings.PARLEY_CHAT_TOKENS_PER_DAY = 2 * TOKENS
    allowances.check_budget(ada)
    allowances.note_usage(ada, tokens=TOKENS)
    process_state.reset(counters.UsageCounters)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 429
    owner = send_request(relay, "/v1/me", method="GET", x_api_key=key).json["owner"]
    assert owner == {
        "limits": {"tokens_per_day": 2 * TOKENS, "cost_per_day": None},
        "use": {"day": {"tokens": 2 * TOKENS, "cost": 0}},
    }


def test_use_is_written_once_for_key_and_owner(relay: RunningRelay, ada: User, settings: Any) -> None:
    settings.PARLEY_CHAT_TOKENS_PER_DAY = 1_000_000
    key = key_with(ada)
    for count in (1, 2):
        send_request(relay, CHAT, HI_BODY, x_api_key=key)
        until_counted(relay, key, count * TOKENS)
        counters.sync()
        counters.sync()
        assert KeyUse.objects.get().tokens == Spending.objects.get().tokens == count * TOKENS
        assert budgets.pools(budgets.payer_of(ApiKey.objects.get()))["owner_day"].used.tokens == count * TOKENS


def test_limit_that_is_set_while_a_key_is_in_use_holds_after_a_moment(relay: RunningRelay, ada: User) -> None:
    key = key_with(ada)
    send_request(relay, CHAT, HI_BODY, x_api_key=key)
    relay.ended()
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    Allowance.objects.create(user=ada, tokens_per_day=5)
    counters.sync()
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 429


# Reservations.


def burst(relay: RunningRelay, key: str, count: int) -> list[tuple[int, str]]:
    """What became of so many calls at once: the status of each, and whether it says that trying again is no use."""
    statuses: list[tuple[int, str]] = []

    def call() -> None:
        answered = send_request(relay, CHAT, HI_BODY, x_api_key=key)
        statuses.append((answered.status, answered.headers.get("x-should-retry", "")))

    callers = [threading.Thread(target=call) for _ in range(count)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert {status for status, _ in statuses} <= {200, 429}
    return statuses


@pytest.mark.any_database
@pytest.mark.parametrize("whose", ["key", "owner"])
@pytest.mark.parametrize("redis_is", ["used", "absent", "away"])
def test_calls_at_once_exceed_a_budget_by_one_answer_at_most(
    relay: RunningRelay, ada: User, vendors: Vendors, settings: Any, request: Any, whose: str, redis_is: str
) -> None:
    if redis_is == "used":
        request.getfixturevalue("store")
    elif redis_is == "absent":
        settings.REDIS_URL = ""
    else:  # configured, and nothing listens there: each process counts for itself
        settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    for _ in range(20):
        vendors.plays("openai-chat", replace(says("Hello."), delay=0.05))
    settings.PARLEY_CHAT_TOKENS_PER_DAY = 100 if whose == "owner" else 0
    key = key_with(ada, tokens_per_day=100 if whose == "key" else None)
    answered, is_used_up = 0, False
    for _ in range(50):
        statuses = burst(relay, key, 20)
        answered += statuses.count((200, ""))
        until_counted(relay, key, answered * TOKENS)
        if is_used_up := (429, "false") in statuses:
            break
    assert is_used_up
    assert 100 <= answered * TOKENS < 100 + TOKENS


@pytest.mark.any_database
def test_a_call_that_redis_did_not_hear_of_counts_for_the_next(
    store: redis.Redis, ada: User, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis answers late once: this process lets the call pass, and the next one still sees it."""
    payer = budgets.payer_of(keys.create(name="k", owner=ada, tokens_per_day=100).api_key)
    found, amount = budgets.budgets_of(payer), Use(0, 90)

    async def reserve_twice() -> list[budgets.BudgetRefusal | None]:
        with monkeypatch.context() as patch:
            patch.setattr(redis_counters, "PATIENCE_SECONDS", 0)
            first = await budgets.reserve(payer, "late", amount, found)
        return [first, await budgets.reserve(payer, "next", amount, found)]

    assert done(reserve_twice) == [None, (found[0], False)]
    assert not store.hexists(f"parley:key:owner-{ada.pk}:reserved", "next")
    process_state.reset(counters.UsageCounters)


@pytest.mark.any_database
def test_calls_that_fit_together_run_together(relay: RunningRelay, ada: User, vendors: Vendors) -> None:
    for _ in range(6):
        vendors.plays("openai-chat", replace(says("Hello."), delay=0.05))
    assert burst(relay, key_with(ada, tokens_per_day=1_000_000), 6) == [(200, "")] * 6


@pytest.mark.any_database
def test_call_that_fails_or_is_left_gives_back_what_it_reserved(
    relay: RunningRelay, ada: User, vendors: Vendors, settings: Any
) -> None:
    settings.REDIS_URL = ""
    key = key_with(ada, tokens_per_day=40)
    api_key = ApiKey.objects.get()
    assert send_request(relay, CHAT, {**HI_BODY, "model": "nowhere/model"}, x_api_key=key).status == 404
    vendors.plays("openai-chat", replace(says(*["word "] * 50), delay=0.05))
    streamed = json.dumps({**HI_BODY, "stream": True}).encode()
    with open_reply(relay, CHAT, streamed, headers={"x-api-key": key}) as left:
        left.response.read(50)
        assert not budgets.pools(budgets.payer_of(api_key))["key_day"].is_idle
        refused = send_request(relay, CHAT, HI_BODY, x_api_key=key)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert "x-should-retry" not in refused.headers
    wait_for(
        lambda: budgets.pools(budgets.payer_of(api_key))["key_day"].is_idle, seconds=10, what="the reservation gone"
    )
    assert budgets.pools(budgets.payer_of(api_key))["owner_day"].is_idle


def test_every_process_has_its_part_of_what_is_left() -> None:
    """Without Redis: two processes, each of which knows of the other's calls only when they are written."""
    budget = BudgetLimit(pool="key_day", unit="tokens", limit=Decimal(100))

    def has_room(*, known: int = 0, unwritten: int = 0, open: int = 0, amount: int = 10, processes: int = 2) -> bool:
        pool = Pool(Use(0, known), Use(0, unwritten), Use(0, open), not open)
        return budget.has_room(pool, Use(0, amount), processes=processes)

    assert has_room(open=40)
    assert not has_room(open=41)
    assert has_room(open=41, processes=1)
    assert not has_room(unwritten=45)
    assert has_room(known=99)  # the only one: at most one answer too many
    assert not has_room(known=90, unwritten=5)
    assert has_room(known=90, unwritten=5, processes=1)


@pytest.mark.any_database
def test_redis_counts_reservations_of_all_processes(store: redis.Redis) -> None:
    def reserve(name: str, *, used: int = 0, amount: int = 10) -> tuple[int, bool] | None:
        meter = redis_counters.Meter("c", scope=1, unit=1, used=used, limit=100, amount=amount)
        return done(lambda: redis_counters.reserve(name, ("owner-1", "k"), (amount, 0), [meter]))

    async def settle(name: str, used: int) -> None:
        redis_counters.settle(name, ("owner-1", "k"), [("c", used)])
        await next(iter(event_loop._tasks))

    passed = (-1, False)
    assert [reserve(f"call-{place}") for place in range(11)] == [passed] * 10 + [(0, False)]
    done(lambda: settle("call-0", 5))
    assert reserve("call-11", amount=5) == passed
    assert reserve("call-12", amount=1) == (0, False)
    assert reserve("call-13", used=100) == (0, True)  # the database knows more, from chats
    for place in range(12):
        done(lambda place=place: settle(f"call-{place}", 0))  # type: ignore[misc]
    store.set("parley:key:c", 99)
    assert reserve("alone", amount=1_000) == passed
    store.zadd("parley:key:owner-1:running", {"alone": 1})  # its process gives no sign of life any more
    assert reserve("next", amount=1_000) == passed


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"max_tokens":50}', 55),
        (b'{"max_completion_tokens": 50}', 58),
        (b'{"max_output_tokens":50,"text":"\\"max_tokens\\":9"}', 63),
        (b'{"generationConfig":{"maxOutputTokens":50}}', 61),
        (b"{}", 1_001),
    ],
)
async def test_reservation_is_what_the_call_may_use_at_most(settings: Any, body: bytes, tokens: int) -> None:
    settings.PARLEY_RELAY_RESERVED_TOKENS = 1_000
    call: Any = type("Call", (), {"body": body, "earlier": None, "address": type("Address", (), {"kind": "chat"})})
    upstream: Any = type("Upstream", (), {"provider": type("Provider", (), {"name": "p"}), "model": "m"})
    assert (await rate_limits._estimate_most_use(call, upstream, [])).tokens == tokens


# Money.


def test_unknown_model_is_charged_at_the_ceiling_under_a_money_budget(
    relay: RunningRelay, ada: User, settings: Any
) -> None:
    settings.PARLEY_PRICES = ()
    settings.PARLEY_UNKNOWN_INPUT_PRICE = settings.PARLEY_UNKNOWN_OUTPUT_PRICE = Decimal(1_000_000)
    plain, limited = key_with(ada, tokens_per_day=1_000), key_with(ada, cost_per_day=TOKENS)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=plain).status == 200
    assert send_request(relay, CHAT, HI_BODY, x_api_key=limited).status == 200
    free, charged = relay.ended(2)
    assert (free.metadata["cost"], "price" in free.metadata) == ("0", False)
    assert (float(charged.metadata["cost"]), charged.metadata["price"]) == (float(TOKENS), "assumed")
    wait_for(lambda: send_request(relay, CHAT, HI_BODY, x_api_key=limited).status == 429, seconds=5, what="a refusal")


def test_known_price_is_no_assumption(relay: RunningRelay, ada: User, settings: Any) -> None:
    settings.PARLEY_PRICES = (Price(model="mod*", input=Decimal(0), output=Decimal(0)),)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key_with(ada, cost_per_day=1)).status == 200
    assert "price" not in relay.ended()[0].metadata


def test_owner_who_was_removed_gets_no_row(ada: User) -> None:
    key = keys.create(name="k", owner=ada).api_key
    tables.add_days([(key.pk, 999_999, prices.today(), Use(1, 5, Decimal(1)))])
    assert (KeyUse.objects.get().tokens, Spending.objects.exists()) == (5, False)
