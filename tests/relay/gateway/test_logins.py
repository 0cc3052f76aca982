"""A caller's subscription login: it reaches the provider that takes it, and nothing else, and is stored nowhere.

The tests attack: each sends a login in a way that would bring it to a second provider, into a file, a row, a log or the
body of an error.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from history.access import keys
from history.db.process_state import process_state
from history.models import ApiKey, Exchange
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.gateway import arrivals, routes
from relay.gateway.arrivals import ArrivalNotes
from relay.gateway.call.logins import Login, LoginMask, headers_for
from relay.models import KeyArrival, PlanLimits
from relay.providers import registry
from relay.providers.base import Model, Rule, Target
from relay.providers.http import HttpProvider
from tests.clients import HI_BODY, Reply, RunningRelay, send_request
from tests.vendors.raw_upstream import UPSTREAM_KEY, RawReply, RawUpstream, complete_reply, raw_endpoint, streamed_reply

LOGIN = "sk-ant-oat01-invented-7f3c9a1b5d8e2046-AAAA"
ACCOUNT = "0f5b8a52-1c77-4a55-9a3e-invented0001"
ANSWER = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 1000},
    }
).encode()
BODY = {**HI_BODY, "model": "claude-sonnet-4-5"}
RESPONSES_BODY = {"model": "gpt-5", "input": "hi", "store": False}
RESPONSE = {
    "id": "resp_0123456789",
    "object": "response",
    "status": "completed",
    "model": "gpt-5",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 1000, "total_tokens": 2000},
}


@pytest.fixture
def plan() -> Iterator[RawUpstream]:
    """The vendor of the subscription."""
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture
def other() -> Iterator[RawUpstream]:
    """A provider with a key of the operator."""
    with RawUpstream() as upstream:
        yield upstream


def plan_endpoint(upstream: RawUpstream, **changes: Any) -> Any:
    fields: dict[str, Any] = {"name": "plan", "credentials": "caller", "api_key": "", "models": (), **changes}
    return raw_endpoint(upstream, **fields)


def operator_endpoint(upstream: RawUpstream, **changes: Any) -> Any:
    return raw_endpoint(upstream, **{"name": "paid", "models": (Model(name="claude-sonnet-4-5"),), **changes})


@pytest.fixture
def providers(plan: RawUpstream, other: RawUpstream) -> registry.Router:
    process_state.reset(routes.Cooldowns, ArrivalNotes)
    router = registry.Router([HttpProvider(plan_endpoint(plan)), HttpProvider(operator_endpoint(other))])
    process_state.set(router)
    return router


def call(relay: RunningRelay, key: str, body: Any = None, path: str = "/v1/messages", **headers: str) -> Reply:
    """A call of a subscriber."""
    sent = {"authorization": f"Bearer {LOGIN}", "x_parley_key": key, **headers}
    return send_request(relay, path, BODY if body is None else body, **sent)


def digest(relay: RunningRelay, *, ends: int = 1) -> None:
    relay.ended(ends)
    digester = Digester(relay.journal.folder, name="test", end_wait=0)
    for _ in range(4):
        digester.step()


def everything_stored(relay: RunningRelay, tmp_path: Path) -> bytes:
    """Each file below the data directory, and each row of each table."""
    files = [path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    rows = []
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            cursor.execute(f'SELECT * FROM "{model._meta.db_table}"')
            rows += [repr([bytes(v) if isinstance(v, memoryview) else v for v in row]) for row in cursor.fetchall()]
    assert rows, "no table was read"
    return b"\n".join([*files, "\n".join(rows).encode("utf-8", "replace")])


def assert_not_stored(relay: RunningRelay, tmp_path: Path, *texts: str) -> None:
    arrivals.flush_arrivals()
    found = everything_stored(relay, tmp_path)
    for text in texts or (LOGIN, ACCOUNT):
        assert text.encode() not in found


def test_a_login_reaches_its_provider_with_the_account_and_without_our_key(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream
) -> None:
    plan.says.append(complete_reply(ANSWER))
    answered = call(relay, key, chatgpt_account_id=ACCOUNT, anthropic_beta="oauth-2025-04-20,other")
    assert (answered.status, answered.body) == (200, ANSWER)
    sent = plan.heard[0]
    assert sent.headers["authorization"] == f"Bearer {LOGIN}"
    assert sent.headers["chatgpt-account-id"] == ACCOUNT
    assert sent.headers["anthropic-beta"] == "oauth-2025-04-20,other"
    assert json.loads(sent.body) == BODY
    assert "x-api-key" not in sent.headers
    assert key not in sent.head
    assert not other.heard


def test_without_a_login_the_provider_of_plans_is_never_called(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream
) -> None:
    for headers in ({"x_api_key": key}, {"authorization": f"Bearer {key}"}, {"x_parley_key": key}):
        assert send_request(relay, "/v1/messages", BODY, **headers).status == 200
    refused = send_request(relay, "/v1/messages", {**BODY, "model": "plan/claude-x"}, x_api_key=key)
    assert (refused.status, refused.json["error"]["type"]) == (403, "permission_error")
    assert "X-Parley-Key" in refused.json["error"]["message"]
    assert not plan.heard
    assert all(sent.headers["x-api-key"] == UPSTREAM_KEY for sent in other.heard)


def test_a_login_without_our_own_header_is_not_forwarded(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream
) -> None:
    assert send_request(relay, "/v1/messages", BODY, authorization=f"Bearer {LOGIN}", x_api_key=key).status == 200
    assert not plan.heard
    assert LOGIN not in other.heard[0].head


@pytest.mark.parametrize(
    "authorization", ["Basic dXNlcjpwYXNzd29yZC1vZi1hLXVzZXI=", "Bearer unused", f"Bearer {'a' * 20_000}", LOGIN]
)
def test_what_is_not_a_login_is_not_forwarded(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, authorization: str
) -> None:
    assert send_request(relay, "/v1/messages", BODY, authorization=authorization, x_parley_key=key).status == 200
    assert not plan.heard
    assert "authorization" not in other.heard[0].headers


def test_our_key_is_not_taken_for_a_login(relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream) -> None:
    assert send_request(relay, "/v1/messages", BODY, authorization=f"Bearer {key}", x_parley_key=key).status == 200
    assert not plan.heard
    assert key not in other.heard[0].head


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Oops", "404 Not Found"])
def test_the_second_target_of_a_route_gets_no_login(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, settings: Any, status: str
) -> None:
    targets = (Target(provider="plan"), Target(provider="paid", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="claude-*", targets=targets),)
    plan.says.append(complete_reply(b'{"error": {}}', status=status))
    other.says.append(complete_reply(ANSWER))
    assert call(relay, key, chatgpt_account_id=ACCOUNT).status == 200
    assert len(plan.heard) == 1
    sent = other.heard[0]
    assert sent.headers["x-api-key"] == UPSTREAM_KEY
    assert LOGIN not in sent.head
    assert ACCOUNT not in sent.head
    assert "authorization" not in sent.headers


def test_the_first_target_of_a_route_gets_no_login_either(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, settings: Any
) -> None:
    targets = (Target(provider="paid"), Target(provider="plan", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="claude-*", targets=targets),)
    other.says.append(complete_reply(b"{}", status="500 Oops"))
    plan.says.append(complete_reply(ANSWER))
    assert call(relay, key, chatgpt_account_id=ACCOUNT).status == 200
    assert LOGIN not in other.heard[0].head
    assert ACCOUNT not in other.heard[0].head
    assert plan.heard[0].headers["authorization"] == f"Bearer {LOGIN}"


def test_a_dead_plan_leads_to_the_second_target_without_the_login(
    relay: RunningRelay, key: str, other: RawUpstream, settings: Any
) -> None:
    dead = plan_endpoint(other, base_url="http://127.0.0.1:1")
    process_state.set(registry.Router([HttpProvider(dead), HttpProvider(operator_endpoint(other))]))
    targets = (Target(provider="plan"), Target(provider="paid", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="claude-*", targets=targets),)
    assert call(relay, key).status == 200
    assert LOGIN not in other.heard[0].head


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_a_refusal_of_the_vendor_passes_unchanged_even_if_there_is_a_second_target(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, settings: Any, status: str
) -> None:
    targets = (Target(provider="plan"), Target(provider="paid", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="claude-*", targets=targets),)
    body = b'{"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired"}}'
    headers = ("content-type: application/json", "www-authenticate: Bearer")
    plan.says.append(complete_reply(body, status=status, headers=headers))
    answered = call(relay, key)
    assert (answered.status, answered.body) == (int(status[:3]), body)
    assert answered.headers["www-authenticate"] == "Bearer"
    assert not other.heard


def test_the_limit_of_one_caller_does_not_keep_others_from_their_plan(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, settings: Any
) -> None:
    targets = (Target(provider="plan"), Target(provider="paid", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="claude-*", targets=targets),)
    plan.says.append(complete_reply(b"{}", status="429 Too Many Requests", headers=("retry-after: 100",)))
    assert call(relay, key).status == 200
    assert call(relay, key, authorization=f"Bearer {LOGIN}-of-another").status == 200
    assert (len(plan.heard), len(other.heard)) == (2, 1)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_not_followed(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, status: str
) -> None:
    plan.says.append(complete_reply(b"", status=status, headers=(f"location: {other.url}/v1/messages",)))
    answered = call(relay, key)
    assert answered.status == 502
    assert "location" not in answered.headers
    assert not other.heard


def test_providers_at_almost_the_same_address_get_no_login(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream
) -> None:
    near = [
        operator_endpoint(plan, name="case", base_url=f"http://LOCALHOST:{plan.port}"),
        operator_endpoint(plan, name="same", base_url=plan.url),
        operator_endpoint(other, name="port"),
    ]
    process_state.set(registry.Router([HttpProvider(one) for one in (plan_endpoint(plan), *near)]))
    for one in near:
        body = {**BODY, "model": f"{one.name}/claude-sonnet-4-5"}
        assert call(relay, key, body, chatgpt_account_id=ACCOUNT).status == 200
    for sent in (*plan.heard, *other.heard):
        assert sent.headers["x-api-key"] == UPSTREAM_KEY
        assert LOGIN not in sent.head
        assert ACCOUNT not in sent.head


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8001/v1/messages",
        "http://LOCALHOST:8000/v1/messages",
        "https://127.0.0.1:8000/v1/messages",
        "http://127.0.0.1:8000@evil.example/v1/messages",
        "http://127.0.0.1:80001/",
        "http://127.0.0.1/v1/messages",
    ],
)
def test_a_login_is_bound_to_scheme_host_and_port(url: str) -> None:
    with RawUpstream() as upstream:
        endpoint = plan_endpoint(upstream, base_url="http://127.0.0.1:8000")
    with pytest.raises(ValueError, match="only be sent to the provider that takes it"):
        headers_for(Login(LOGIN), endpoint, url)
    assert headers_for(Login(LOGIN), endpoint, "http://127.0.0.1:8000/v1/messages") == {
        "Authorization": f"Bearer {LOGIN}"
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"connection": "authorization, chatgpt-account-id, x-parley-key"},
        {"x-forwarded-host": "evil.example", "forwarded": "host=evil.example", "x-forwarded-authorization": "Bearer x"},
        {"Proxy-Authorization": f"Bearer {LOGIN}"},
        {"cookie": f"session={LOGIN}"},
    ],
)
def test_headers_that_smuggle_change_nothing(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, headers: dict[str, str]
) -> None:
    assert call(relay, key, chatgpt_account_id=ACCOUNT, **headers).status == 200
    sent = plan.heard[0]
    lines = sent.head.lower().split("\r\n")
    assert [line for line in lines if line.startswith("authorization:")] == [f"authorization: bearer {LOGIN.lower()}"]
    assert [line for line in lines if line.startswith("chatgpt-account-id:")] == [f"chatgpt-account-id: {ACCOUNT}"]
    assert not [line for line in lines if line.startswith(("cookie", "proxy-", "x-forwarded", "forwarded", "x-parley"))]
    assert sent.headers["host"] == f"127.0.0.1:{plan.port}"
    assert not other.heard


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        ("openai-chat", "/v1/chat/completions", HI_BODY),
        ("openai-chat", "/v1/embeddings", {"model": "claude-sonnet-4-5", "input": "x"}),
        ("openai-responses", "/v1/responses", RESPONSES_BODY),
    ],
)
def test_a_call_in_another_dialect_is_not_translated_for_a_plan(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, dialect: str, path: str, body: Any
) -> None:
    answered = call(relay, key, {**body, "model": "plan/claude-x"}, path)
    assert answered.status == 404
    assert not plan.heard
    assert not other.heard


def test_an_earlier_translated_answer_is_not_translated_for_a_plan(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, ada: User
) -> None:
    """The conversation behind an id of ours would have to be encoded into the request."""
    chat = operator_endpoint(other, dialect="anthropic-messages", models=(Model(name="translated"),))
    plans = plan_endpoint(plan, dialect="openai-responses", models=(Model(name="gpt-5"),))
    process_state.set(registry.Router([HttpProvider(plans), HttpProvider(chat)]))
    other.says.append(complete_reply(ANSWER))
    first = call(relay, key, {**RESPONSES_BODY, "store": True, "model": "translated"}, "/v1/responses")
    assert first.status == 200, first.body
    again = {**RESPONSES_BODY, "previous_response_id": first.json["id"]}
    refused = call(relay, key, again, "/v1/responses")
    assert refused.status == 400
    assert "never translated" in refused.json["error"]["message"]
    assert not plan.heard


ECHOES = {
    "in an error": complete_reply(
        json.dumps({"type": "error", "error": {"type": "x", "message": f"bad {LOGIN} {ACCOUNT}"}}).encode(),
        status="400 Bad Request",
        headers=("content-type: application/json", f"x-request-id: {LOGIN}", f"request-id: {ACCOUNT}"),
    ),
    "in the answer and its id": complete_reply(
        ANSWER.replace(b"Hello.", f"Your login is {LOGIN} of {ACCOUNT}.".encode()).replace(b"msg_1", LOGIN.encode())
    ),
    "compressed": complete_reply(
        gzip.compress(ANSWER.replace(b"Hello.", f"Your login is {LOGIN}.".encode())),
        headers=("content-type: application/json", "content-encoding: gzip"),
    ),
    "in a header that is not valid": complete_reply(b"", headers=(f"x-bad {LOGIN}",)),
    "in a chunk that is not valid": RawReply(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        + f"1\r\n{{\r\n{LOGIN} {ACCOUNT}\r\n".encode()
    ),
    "in a web page": complete_reply(f"<html>{LOGIN}".encode(), headers=("content-type: text/html",)),
    "in the limits": complete_reply(
        ANSWER, headers=("content-type: application/json", f"anthropic-ratelimit-unified-status: {LOGIN}")
    ),
    "cut before its end": complete_reply(ANSWER[:-1] + LOGIN[:-1].encode()),
}


@pytest.mark.parametrize("recording", ["full", "redacted", "no_replies", "metadata", "off"])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_login_that_the_vendor_repeats_is_stored_nowhere(
    relay: RunningRelay,
    ada: User,
    plan: RawUpstream,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    echo: str,
    recording: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    key = keys.create(name="k", owner=ada, recording=recording).secret
    plan.says.append(ECHOES[echo])
    answered = call(relay, key, chatgpt_account_id=ACCOUNT)
    if recording != "off":
        assert_not_stored(relay, tmp_path, LOGIN[:-1], ACCOUNT)
        digest(relay)
        assert Exchange.objects.count() == 1
    assert_not_stored(relay, tmp_path, LOGIN[:-1], ACCOUNT)
    assert LOGIN not in caplog.text
    assert ACCOUNT not in caplog.text
    if answered.status >= 500:  # our own error; the vendor's passes unchanged
        assert LOGIN.encode() not in answered.body


def test_a_login_in_pieces_of_a_stream_is_not_stored(
    relay: RunningRelay, key: str, plan: RawUpstream, tmp_path: Path
) -> None:
    event = f'event: ping\ndata: {{"type": "ping", "echo": "{LOGIN}", "of": "{ACCOUNT}"}}\n\n'.encode()
    pieces = [event[place : place + 5] for place in range(0, len(event), 5)]
    spaced = [one for piece in pieces for one in (piece, 0.002)]
    plan.says.append(streamed_reply(*spaced))
    answered = call(relay, key, {**BODY, "stream": True}, chatgpt_account_id=ACCOUNT)
    assert answered.body == event
    relay.ended()
    assert_not_stored(relay, tmp_path)
    assert b'"echo": "' + b"*" * len(LOGIN) + b'"' in relay.replied()


def test_a_login_that_the_caller_writes_everywhere_is_not_stored(
    relay: RunningRelay, key: str, plan: RawUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {**BODY, "messages": [{"role": "user", "content": f"My login is {LOGIN}."}], "metadata": {"user_id": LOGIN}}
    path = f"/v1/messages?beta=true&authorization={LOGIN}"
    plan.says.append(complete_reply(ANSWER))
    answered = call(relay, key, body, path, x_my_header=f"Bearer {LOGIN}", user_agent=LOGIN, chatgpt_account_id=ACCOUNT)
    assert answered.status == 200
    assert json.loads(plan.heard[0].body) == body
    digest(relay)
    assert_not_stored(relay, tmp_path)
    assert LOGIN not in caplog.text
    assert relay.accepted()[0].body_size == len(json.dumps(body))
    model = call(relay, key, {**BODY, "model": LOGIN})
    assert model.status == 200
    digest(relay, ends=2)
    assert_not_stored(relay, tmp_path)


def test_our_key_and_the_account_are_in_no_journal_even_if_no_plan_is_configured(
    relay: RunningRelay, key: str, other: RawUpstream, tmp_path: Path
) -> None:
    process_state.set(registry.Router([HttpProvider(operator_endpoint(other))]))
    assert call(relay, key, chatgpt_account_id=ACCOUNT).status == 200
    assert LOGIN not in other.heard[0].head
    assert ACCOUNT not in other.heard[0].head
    relay.ended()
    assert_not_stored(relay, tmp_path, LOGIN, ACCOUNT, key)


def test_plans_are_off_by_default(relay: RunningRelay, key: str, other: RawUpstream) -> None:
    process_state.set(registry.Router([HttpProvider(operator_endpoint(other))]))
    assert call(relay, key).status == 200
    assert relay.ended()[0].metadata.get("billing", "") == ""
    assert call(relay, key, {**BODY, "model": "claude-of-a-plan"}).status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"x_parley_key": "parley_wrong12345_" + "a" * 43, "authorization": f"Bearer {LOGIN}"},
        {"x_parley_key": "nonsense", "authorization": f"Bearer {LOGIN}"},
        {"x_parley_key": "", "authorization": f"Bearer {LOGIN}"},
        {"authorization": f"Bearer {LOGIN}", "anthropic_beta": "a,oauth-2025-04-20"},
        {"authorization": f"Bearer {LOGIN}", "chatgpt_account_id": ACCOUNT},
        {"x_parley_key": "nonsense", "x_api_key": "sk-ant-api03-of-the-vendor"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/models", "/v1/me"])
def test_a_wrong_key_beside_a_login_is_a_403(
    relay: RunningRelay, key: str, plan: RawUpstream, headers: dict[str, str], path: str
) -> None:
    method = "GET" if path in ("/v1/models", "/v1/me") else "POST"
    refused = send_request(relay, path, BODY, method=method, **headers)
    assert refused.status == 403
    assert "X-Parley-Key" in refused.json["error"]["message"]
    assert LOGIN.encode() not in refused.body
    assert not plan.heard


@pytest.mark.parametrize("headers", [{}, {"x_parley_key": "nonsense"}, {"x_api_key": "nonsense"}])
def test_a_wrong_key_without_a_login_is_a_401(relay: RunningRelay, key: str, headers: dict[str, str]) -> None:
    assert send_request(relay, "/v1/messages", BODY, **headers).status == 401


def test_a_revoked_key_beside_a_login_is_a_403(relay: RunningRelay, key: str, ada: User) -> None:
    keys.revoke(ApiKey.objects.get(), actor=ada)
    assert call(relay, key).status == 403


def test_a_call_of_a_plan_costs_nothing_and_says_its_list_price(
    relay: RunningRelay, key: str, plan: RawUpstream
) -> None:
    plan.says.append(complete_reply(ANSWER))
    assert call(relay, key).status == 200
    digest(relay)
    exchange = Exchange.objects.get()
    assert (exchange.provider, exchange.cost) == ("plan", Decimal(0))
    assert exchange.is_paid_by_plan
    assert exchange.list_price == Decimal("0.018")
    assert exchange.session is not None
    assert exchange.session.cost == 0


def test_the_list_price_of_a_key_with_a_budget_in_money_costs_nothing(
    relay: RunningRelay, key: str, plan: RawUpstream
) -> None:
    ApiKey.objects.update(cost_per_day=Decimal("0.0001"))
    keys.ring.forget(ApiKey.objects.get())
    for _ in range(2):
        plan.says.append(complete_reply(ANSWER))
        assert call(relay, key).status == 200
    digest(relay, ends=2)
    assert {(call.cost, call.list_price) for call in Exchange.objects.all()} == {(Decimal(0), Decimal("0.018"))}


def test_a_call_that_falls_back_to_the_operators_key_has_a_cost(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream, settings: Any
) -> None:
    targets = (Target(provider="plan"), Target(provider="paid", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="claude-*", targets=targets),)
    plan.says.append(complete_reply(b"{}", status="429 Too Many Requests"))
    other.says.append(complete_reply(ANSWER))
    assert call(relay, key).status == 200
    digest(relay)
    exchange = Exchange.objects.get()
    assert (exchange.provider, exchange.cost, exchange.list_price) == ("paid", Decimal("0.018"), None)
    assert "billing" not in exchange.metadata


def test_codex_gets_the_vendors_own_list_of_models_and_the_short_path(
    relay: RunningRelay, key: str, plan: RawUpstream, other: RawUpstream
) -> None:
    codex = plan_endpoint(plan, dialect="openai-responses", base_url=f"{plan.url}/backend-api/codex")
    process_state.set(registry.Router([HttpProvider(codex), HttpProvider(operator_endpoint(other))]))
    listed = b'{"models": [{"slug": "gpt-5", "display_name": "GPT-5"}]}'
    plan.says.extend([complete_reply(listed), complete_reply(json.dumps(RESPONSE).encode())])
    sent = {"authorization": f"Bearer {LOGIN}", "x_parley_key": key, "chatgpt_account_id": ACCOUNT}
    answered = send_request(relay, "/v1/models?client_version=0.169.0", b"", method="GET", **sent)
    assert (answered.status, answered.body) == (200, listed)
    assert send_request(relay, "/v1/responses", RESPONSES_BODY, **sent).json["id"] == RESPONSE["id"]
    assert [one.line for one in plan.heard] == [
        "GET /backend-api/codex/models?client_version=0.169.0 HTTP/1.1",
        "POST /backend-api/codex/responses HTTP/1.1",
    ]
    for one in plan.heard:
        assert (one.headers["authorization"], one.headers["chatgpt-account-id"]) == (f"Bearer {LOGIN}", ACCOUNT)
    assert not other.heard
    assert "data" in send_request(relay, "/v1/models", b"", method="GET", **sent).json
    assert "data" in send_request(relay, "/v1/models?client_version=0.169.0", method="GET", x_api_key=key).json
    assert len(plan.heard) == 2


def test_the_key_knows_which_credentials_arrived_and_the_limits_of_the_plan(
    relay: RunningRelay, key: str, plan: RawUpstream
) -> None:
    limits = ("anthropic-ratelimit-unified-5h-utilization: 0.42", "x-other: 1", "content-type: application/json")
    plan.says.append(complete_reply(ANSWER, headers=limits))
    assert call(relay, key, user_agent="claude-cli/2.1.326").status == 200
    arrivals.flush_arrivals()
    arrival = KeyArrival.objects.get()
    assert (arrival.key_header, arrival.has_login, arrival.has_account) == ("x-parley-key", True, False)
    assert arrival.client == "Claude Code"
    reported = PlanLimits.objects.get()
    assert reported.provider == "plan"
    assert reported.headers == {"anthropic-ratelimit-unified-5h-utilization": "0.42"}
    send_request(relay, "/v1/me", method="GET", x_api_key=key)
    arrivals.flush_arrivals()
    arrival.refresh_from_db()
    assert (arrival.key_header, arrival.has_login) == ("x-api-key", False)


def test_me_says_which_credentials_arrived(relay: RunningRelay, key: str) -> None:
    sent = {"authorization": f"Bearer {LOGIN}", "x_parley_key": key, "chatgpt_account_id": ACCOUNT}
    me = send_request(relay, "/v1/me", b"", method="GET", **sent)
    assert me.json["arrived"] == {"key": "x-parley-key", "login": True, "account": True}
    assert LOGIN.encode() not in me.body
    assert send_request(relay, "/v1/me", method="GET", x_api_key=key).json["arrived"] == {
        "key": "x-api-key",
        "login": False,
        "account": False,
    }


@pytest.mark.parametrize("size", [1, 3, 7, 19, 100])
def test_a_mask_finds_a_login_however_it_is_cut(size: int) -> None:
    text = f"{LOGIN[:9]}{LOGIN}, {LOGIN}{ACCOUNT}{LOGIN[:5]}".encode()
    mask = LoginMask((LOGIN, ACCOUNT))
    masked = b"".join(mask.feed(text[place : place + size]) for place in range(0, len(text), size)) + mask.close()
    stars = b"*" * len(LOGIN)
    assert masked == LOGIN[:9].encode() + stars + b", " + stars + b"*" * len(ACCOUNT) + LOGIN[:5].encode()
    assert len(masked) == len(text)


def test_a_login_is_in_no_repr() -> None:
    assert LOGIN not in repr(Login(LOGIN, ACCOUNT))
    assert ACCOUNT not in repr(Login(LOGIN, ACCOUNT))
