"""What a key may use, told in the caller's envelope, and held across processes."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings as live_settings
from django.db import OperationalError, connections
from django.db.models import F
from django.utils import timezone

from history.access import keys
from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.models import ApiKey
from project.accounts.models import User
from project.background.jobs import JOBS
from relay.digest.digester import Digester
from relay.gateway import rate_limits
from relay.models import KeyMinute, KeyStreams, KeyUse
from relay.usage import accounts, budgets, counters, tables
from relay.usage.prices import Price
from tests.clients import HI_BODY, SMALLEST_CALLS, RunningRelay, open_reply, send_request
from tests.servers.databases import create_migrated_database
from tests.servers.processes import Process, clean_environment, free_port, run_manage, run_server, wait_for
from tests.vendors import KEYS, Vendors, says

pytestmark = pytest.mark.runs_first

CHAT = "/v1/chat/completions"
TOKENS = 17  # of one played answer


def early_in_the_minute() -> None:
    """The minute is the clock's: no test is to be caught by its end."""
    if time.time() % 60 > 50:
        time.sleep(61 - time.time() % 60)


def key_with(owner: User, **of_key: Any) -> str:
    return keys.create(name="limited", owner=owner, recording="full", **of_key).secret


def until_counted(relay: RunningRelay, key: str, tokens: int) -> None:
    """The caller has its answer, and the journal its end, a moment before the key has been charged."""
    wait_for(lambda: _counted(relay, key) == (tokens, 0), seconds=10, what=f"{tokens} tokens counted")


def _counted(relay: RunningRelay, key: str) -> tuple[int, int]:
    use = send_request(relay, "/v1/me", method="GET", x_api_key=key).json["use"]
    return use["day"]["tokens"], use["running"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_request_too_many_is_told_in_every_language(
    relay: RunningRelay, ada: User, vendors: Vendors, dialect: str
) -> None:
    early_in_the_minute()
    key = key_with(ada, requests_per_minute=1)
    path, body = SMALLEST_CALLS[dialect]
    assert send_request(relay, path, body, authorization=f"Bearer {key}", anthropic_version="2023-06-01").status == 200
    answered = send_request(relay, path, body, authorization=f"Bearer {key}", anthropic_version="2023-06-01")
    failed = DIALECTS[dialect].decode_error(answered.status, answered.body)
    assert (answered.status, failed.kind) == (429, "rate_limit")
    assert "1 requests per minute" in failed.message
    assert 0 < int(answered.headers["retry-after"]) <= 60
    assert len(vendors.requests) == 1
    assert len(relay.accepted()) == 1


def test_what_was_refused_is_not_counted(relay: RunningRelay, ada: User) -> None:
    early_in_the_minute()
    key = key_with(ada, requests_per_minute=2)
    assert [send_request(relay, CHAT, HI_BODY, x_api_key=key).status for _ in range(4)] == [200, 200, 429, 429]
    assert send_request(relay, "/v1/me", method="GET", x_api_key=key).json["use"]["minute"]["requests"] == 2


def test_tokens_of_a_minute_end_with_the_call_that_goes_over(relay: RunningRelay, ada: User) -> None:
    early_in_the_minute()
    key = key_with(ada, tokens_per_minute=TOKENS + 1)
    statuses = []
    for count in range(1, 4):
        statuses.append(send_request(relay, CHAT, HI_BODY, x_api_key=key).status)
        until_counted(relay, key, TOKENS * min(count, 2))
    assert statuses == [200, 200, 429]


def test_so_many_calls_at_once_and_one_more_when_one_has_ended(
    relay: RunningRelay, ada: User, vendors: Vendors
) -> None:
    key = key_with(ada, concurrent_streams=1)
    vendors.plays("openai-chat", replace(says(*["word "] * 20), delay=0.05))
    with open_reply(relay, CHAT, json.dumps({**HI_BODY, "stream": True}).encode(), headers={"x-api-key": key}) as first:
        first.response.read(10)
        second = send_request(relay, CHAT, HI_BODY, x_api_key=key)
        assert (second.status, second.headers["retry-after"]) == (429, "1")
        first.read()
    relay.ended()
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200


def test_a_call_that_is_let_go_is_not_counted_as_going_on(relay: RunningRelay, ada: User, vendors: Vendors) -> None:
    key = key_with(ada, concurrent_streams=1)
    vendors.plays("openai-chat", replace(says(*["word "] * 50), delay=0.1))
    with open_reply(relay, CHAT, json.dumps({**HI_BODY, "stream": True}).encode(), headers={"x-api-key": key}) as first:
        first.response.read(10)
    assert relay.ended()[0].reason == "client_gone"
    wait_for(
        lambda: send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200,
        seconds=5,
        what="a free place for a call",
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("tokens_per_day", f"{TOKENS} tokens per day"),
        ("tokens_per_month", f"{TOKENS} tokens per month"),
        ("cost_per_day", f"${TOKENS} per day"),
        ("cost_per_month", f"${TOKENS} per month"),
    ],
)
def test_a_budget_that_is_used_up_says_when_it_goes_on_and_that_trying_again_is_no_use(
    relay: RunningRelay, ada: User, settings: Any, limit: str, words: str
) -> None:
    settings.PARLEY_PRICES = (Price(model="mod*", input=Decimal(1_000_000), output=Decimal(1_000_000)),)
    key = key_with(ada, **{limit: TOKENS})
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200
    until_counted(relay, key, TOKENS)
    counters.sync()
    answered = send_request(relay, CHAT, HI_BODY, x_api_key=key)
    assert (answered.status, answered.headers["x-should-retry"]) == (429, "false")
    assert 0 < int(answered.headers["retry-after"]) <= 31 * 86_400
    told = answered.json["error"]["message"]
    assert told.startswith(f"This key has reached its limit of {words}. Try again in ")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "a second"),
        (119, "119 seconds"),
        (121, "3 minutes"),
        (7_199, "120 minutes"),
        (79_191, "22 hours"),
        (13 * 86_400, "13 days"),
    ],
)
def test_how_long_a_limit_holds_is_said_as_people_say_it_and_never_too_short(seconds: int, words: str) -> None:
    refusal = rate_limits.over_limit("5 tokens per day", seconds)
    assert refusal.message == f"This key has reached its limit of 5 tokens per day. Try again in {words}."
    assert ("retry-after", str(seconds)) in refusal.headers


@pytest.mark.parametrize(
    ("now", "hours"), [("2026-11-01T00:30", 24.5), ("2026-03-08T00:30", 22.5), ("2026-11-02T00:30:00.5", 23.5)]
)
def test_it_goes_on_at_midnight_also_when_the_clocks_change(
    settings: Any, monkeypatch: pytest.MonkeyPatch, now: str, hours: float
) -> None:
    settings.TIME_ZONE = "America/New_York"
    moment = datetime.fromisoformat(now).replace(tzinfo=ZoneInfo(settings.TIME_ZONE)).timestamp()
    monkeypatch.setattr(time, "time", lambda: moment)
    used_up = budgets.find_used_up(budgets.payer_of(ApiKey(pk=0, owner_id=0, tokens_per_day=0)))
    assert used_up
    assert used_up.seconds_to_reset == int(hours * 3_600)
    process_state.reset(counters.UsageCounters)


def test_what_is_being_written_at_midnight_is_written_once(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    key = keys.create(name="late", owner=ada, tokens_per_month=1_000).api_key
    now = datetime(2026, 11, 14, 23, 59, 59, tzinfo=ZoneInfo(live_settings.TIME_ZONE)).timestamp()
    monkeypatch.setattr(time, "time", lambda: now)
    add_days = tables.add_days

    def slowly(days: Any) -> None:
        nonlocal now
        add_days(days)
        now += 2  # a new day
        counters.note(key, 5, Decimal(0))

    counters.note(key, 30, Decimal(0))
    with monkeypatch.context() as patch:
        patch.setattr(tables, "add_days", slowly)
        counters.sync()
    counters.sync()
    assert list(KeyUse.objects.order_by("day").values_list("day__day", "tokens")) == [(14, 30), (15, 5)]
    process_state.reset(counters.UsageCounters)


def test_what_was_used_is_written_once_and_found_again_by_another_process(relay: RunningRelay, ada: User) -> None:
    key = key_with(ada, tokens_per_day=TOKENS * 2)
    send_request(relay, CHAT, HI_BODY, x_api_key=key)
    until_counted(relay, key, TOKENS)
    counters.sync()
    counters.sync()
    row = KeyUse.objects.get()
    assert (row.requests, row.tokens) == (1, TOKENS)
    process_state.reset(counters.UsageCounters)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200
    relay.ended(2)
    wait_for(lambda: send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 429, seconds=5)


def test_digester_counts_keys_without_limits_with_the_exchange(relay: RunningRelay, ada: User, settings: Any) -> None:
    settings.PARLEY_PRICES = (Price(model="mod*", input=Decimal(1_000_000), output=Decimal(1_000_000)),)
    key = key_with(ada)
    send_request(relay, CHAT, HI_BODY, x_api_key=key)
    (ended,) = relay.ended()
    assert (ended.is_counted, ended.usage_hint) == (False, {})
    counters.sync()
    counters.sync()
    assert (KeyUse.objects.get().requests, KeyUse.objects.get().tokens) == (1, 0)
    for _ in range(2):
        Digester(relay.journal.folder, name="test", end_wait=0).step()
    row = KeyUse.objects.get()
    assert (row.requests, row.tokens, row.cost) == (1, TOKENS, Decimal(TOKENS))
    used = send_request(relay, "/v1/me", method="GET", x_api_key=key).json["use"]
    told = {"requests": 1, "tokens": TOKENS, "cost": TOKENS}
    assert (used["day"], used["month"]) == (told, told)
    assert used["minute"]["requests"] == 1
    assert KeyMinute.objects.get().tokens == TOKENS


def test_a_limit_that_is_set_later_knows_what_was_used_before(relay: RunningRelay, ada: User) -> None:
    secret = key_with(ada)
    send_request(relay, CHAT, HI_BODY, x_api_key=secret)
    relay.ended()
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    keys.change(ApiKey.objects.get(), actor=ada, tokens_per_day=TOKENS)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=secret).status == 429


def test_abandoned_stream_is_counted_by_its_size(relay: RunningRelay, ada: User, vendors: Vendors) -> None:
    key = key_with(ada, tokens_per_day=100_000)
    vendors.plays("openai-chat", replace(says(*["word "] * 50), delay=0.05))
    with open_reply(relay, CHAT, json.dumps({**HI_BODY, "stream": True}).encode(), headers={"x-api-key": key}) as first:
        first.response.read(1_000)
    assert relay.ended()[0].usage_hint["source"] == "estimated"
    wait_for(lambda: _counted(relay, key)[0] > 20, seconds=10, what="the tokens counted")


def test_outage_of_the_database_refuses_no_call(
    relay: RunningRelay, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("the database is away")

    key = key_with(ada, tokens_per_day=5, requests_per_minute=100)
    monkeypatch.setattr(tables, "total_of", away)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 200
    # What this process counted holds.
    wait_for(lambda: send_request(relay, CHAT, HI_BODY, x_api_key=key).status == 429, seconds=10, what="a refusal")


def test_counts_of_minutes_and_of_processes_that_are_over_go(relay: RunningRelay, ada: User) -> None:
    api_key = ApiKey.objects.get(pk=keys.create(name="k", owner=ada).api_key.pk)
    KeyMinute.objects.create(key=api_key, minute=1)
    KeyStreams.objects.create(key=api_key, process="gone", at=timezone.now() - timedelta(hours=1))
    tables.delete_expired()
    assert (KeyMinute.objects.count(), KeyStreams.objects.count()) == (0, 0)


def test_what_is_counted_elsewhere_is_known_within_a_second() -> None:
    """One writes and another reads, each as often as this, at worst one just after the other."""
    (job,) = [job for job in JOBS if job.run == "relay.usage.counters.sync"]
    assert 2 * job.every < 1


def test_a_key_that_rests_costs_nothing_and_its_next_call_knows_what_others_counted(
    relay: RunningRelay, ada: User, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    secret = key_with(ada, tokens_per_day=2 * TOKENS)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=secret).status == 200
    until_counted(relay, secret, TOKENS)
    counters.sync()
    monkeypatch.setattr(accounts, "BUSY_SECONDS", 0.0)
    with django_assert_num_queries(0):
        counters.sync()
    KeyUse.objects.update(tokens=F("tokens") + TOKENS)
    assert send_request(relay, CHAT, HI_BODY, x_api_key=secret).status == 429


# Two real processes.


def post(port: int, key: str, body: dict[str, Any]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", CHAT, json.dumps(body), {"x-api-key": key, "content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


MAKE_KEYS = """
import json
from history.access import keys
from project.accounts.models import User
ada = User.objects.create_user("ada", is_staff=True)
print(json.dumps([keys.create(name="k", owner=ada, **limit).secret for limit in json.loads('LIMITS')]))
"""


def made_keys(variables: dict[str, str], *of_keys: dict[str, int]) -> list[str]:
    code = MAKE_KEYS.replace("LIMITS", json.dumps(of_keys))
    made: list[str] = json.loads(run_manage("shell", "--no-imports", "--command", code, **variables).stdout)
    return made


@pytest.mark.any_database
def test_of_a_burst_as_many_pass_as_may_however_often_the_counts_are_written(
    relay: RunningRelay, ada: User, vendors: Vendors, settings: Any
) -> None:
    """A process reads what others have counted while it writes what it has itself."""
    settings.REDIS_URL = ""
    early_in_the_minute()
    is_over = threading.Event()
    writer = threading.Thread(target=_written_again_and_again, args=[is_over])
    writer.start()
    try:
        passed = [_passed_of_a_burst(relay, key_with(ada, requests_per_minute=3)) for _ in range(6)]
    finally:
        is_over.set()
        writer.join()
    assert passed == [3] * 6


def _written_again_and_again(is_over: threading.Event) -> None:
    while not is_over.is_set():
        counters.sync()
    connections.close_all()


def _passed_of_a_burst(relay: RunningRelay, key: str) -> int:
    statuses: list[int] = []
    callers = [
        threading.Thread(target=lambda: statuses.append(send_request(relay, CHAT, HI_BODY, x_api_key=key).status))
        for _ in range(12)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return statuses.count(200)


@pytest.mark.django_db
def test_limits_hold_across_processes(vendors: Vendors, tmp_path: Path) -> None:
    """Through Redis at once, else through the database within a second."""
    with create_migrated_database(tmp_path) as url:
        variables = {
            "DATABASE_URL": url,
            "REDIS_URL": live_settings.REDIS_URL,
            "PARLEY_DATA_DIR": str(tmp_path),
            "OPENAI_BASE_URL": f"{vendors.url}/v1",
            "OPENAI_API_KEY": KEYS["openai"],
            "PARLEY_BACKGROUND": "off",
        }
        limits = ({"requests_per_minute": 3}, {"concurrent_streams": 1}, {"tokens_per_day": TOKENS})
        by_minute, at_once, by_day = made_keys(variables, *limits)
        environment, ports = clean_environment(**variables), (free_port(), free_port())
        with _serving(ports[0], tmp_path, environment), _serving(ports[1], tmp_path, environment):
            _check_minute(ports, by_minute)
            _check_budget(ports, by_day)
            _check_at_once(ports, at_once, vendors)


def _serving(port: int, folder: Path, environment: dict[str, str]) -> AbstractContextManager[Process]:
    log = folder / f"log-{port}"
    return run_server("uvicorn", application="project.asgi:application", port=port, log=log, environment=environment)


# Without Redis one writes and the other reads, which takes a second, and longer on a slow machine.
SECONDS = 0 if live_settings.REDIS_URL else 20
ASKED = {**HI_BODY, "model": "openai/model"}


def _check_minute(ports: tuple[int, int], key: str) -> None:
    early_in_the_minute()
    assert [post(port, key, ASKED) for port in (*ports, ports[0])] == [200] * 3
    wait_for(lambda: [post(port, key, ASKED) for port in ports] == [429, 429], seconds=SECONDS, what="two refusals")


def _check_budget(ports: tuple[int, int], key: str) -> None:
    assert post(ports[0], key, ASKED) == 200
    wait_for(lambda: [post(port, key, ASKED) for port in ports] == [429, 429], seconds=20, what="a budget used up")


def _check_at_once(ports: tuple[int, int], key: str, vendors: Vendors) -> None:
    before = len(vendors.requests)
    vendors.plays("openai-chat", replace(says(*["word "] * 60), delay=0.1))
    running = threading.Thread(target=post, args=(ports[0], key, {**ASKED, "stream": True}))
    running.start()
    vendors.wait_for(before + 1)
    wait_for(lambda: post(ports[1], key, ASKED) == 429, seconds=SECONDS, what="a refusal")
    assert running.is_alive(), "it was refused for the other call"
    running.join(20)
