"""Pages, REST and admin of subscriptions: printed settings, which credential arrived, limits, cost and list price."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history.access import keys
from history.clients.setups import SETUPS
from history.db.process_state import process_state
from history.models import ApiKey, Exchange, Message
from relay.models import KeyArrival, PlanLimits
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint
from relay.providers.http import HttpProvider
from tests.factories import create_chat

pytestmark = pytest.mark.django_db
NEW = {"name": "laptop", "recording": "full", "scopes": ["relay"]}


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def key(ada: Any) -> ApiKey:
    return keys.create(name="laptop", owner=ada).api_key


@pytest.fixture
def plans() -> Iterator[None]:
    """A provider for the logins of each vendor."""
    endpoints = [
        Endpoint(
            name=dialect, dialect=dialect, base_url="https://vendor.example", credentials="caller", lists_models=False
        )
        for dialect in ("anthropic-messages", "openai-responses")
    ]
    process_state.set(registry.Router([HttpProvider(endpoint) for endpoint in endpoints]))
    yield
    process_state.reset(registry.Router)


def read(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return unescape(response.content.decode())


def blocks(page: str) -> list[str]:
    """The settings that the page prints."""
    return [text.partition("</code>")[0] for text in page.split("<code>") if "parley_" in text.partition("</code>")[0]]


def test_without_a_provider_for_logins_no_settings_for_a_subscription_are_printed(reader: Client) -> None:
    page = unescape(reader.post("/keys/", NEW).content.decode())
    assert "your subscription" not in page
    assert "ask the operator for a provider that takes logins" in page
    assert "requires_openai_auth" not in page


def test_settings_are_printed_for_each_client_and_plan(reader: Client, plans: None, settings: Any) -> None:
    settings.PARLEY_URL = "https://parley.example"
    page = unescape(reader.post("/keys/", NEW).content.decode())
    assert page.count("your subscription</h2>") == 2
    assert "ask the operator for a provider" not in page
    printed = blocks(page)
    claude = [
        text for text in printed if "ANTHROPIC_BASE_URL=https://parley.example\n" in text and "NONESSENTIAL" in text
    ]
    assert len(claude) == 2
    [of_plan] = [text for text in claude if "X-Parley-Key" in text]
    assert "unset ANTHROPIC_AUTH_TOKEN ANTHROPIC_API_KEY" in of_plan
    codex = [tomllib.loads(text) for text in printed if "model_providers" in text]
    assert [file["model_providers"]["parley"].get("requires_openai_auth", False) for file in codex] == [False, True]
    for file in codex:
        assert file["model_provider"] == "parley"
        assert file["model_providers"]["parley"]["base_url"] == "https://parley.example/v1"
        assert file["model_providers"]["parley"]["http_headers"]["X-Parley-Key"].startswith("parley_")


@pytest.mark.parametrize("setup", [setup for setup in SETUPS if setup.client == "Claude Code"])
def test_every_printed_setting_of_claude_code_keeps_our_key_from_other_hosts(setup: Any) -> None:
    assert "\nexport CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1" in setup.text


def test_the_page_of_a_key_says_which_credential_arrived(reader: Client, key: ApiKey, plans: None) -> None:
    address = f"/keys/{key.prefix}/"
    assert "No call has arrived yet." in read(reader, address)
    arrival = KeyArrival.objects.create(
        key=key, at=timezone.now(), key_header="x-parley-key", has_login=True, has_account=True, client="Codex"
    )
    page = read(reader, address)
    assert "x-parley-key" in page
    assert "in Authorization, with an account" in page
    assert "Your subscription is used where a provider takes it." in page
    process_state.set(registry.Router([]))
    assert "No provider of this server takes logins." in read(reader, address)
    arrival.has_login, arrival.key_header = False, "authorization"
    arrival.save()
    assert "Without a login, calls use the provider keys of this server." in read(reader, address)


def test_the_page_of_a_key_shows_the_limits_of_the_plan_to_its_owner_alone(
    reader: Client, key: ApiKey, staff: Any
) -> None:
    headers = {"x-codex-primary-used-percent": "12", "x-codex-plan-type": "<b>plus</b>"}
    PlanLimits.objects.create(key=key, provider="chatgpt-plan", headers=headers, at=timezone.now())
    page = reader.get(f"/keys/{key.prefix}/").content.decode()
    assert "Limits of your plan at chatgpt-plan" in page
    assert "x-codex-primary-used-percent" in page
    assert "&lt;b&gt;plus&lt;/b&gt;" in page
    staff.is_superuser = True
    staff.save()
    reader.force_login(staff)
    assert "x-codex-primary-used-percent" not in read(reader, f"/keys/{key.prefix}/")


@pytest.fixture
def paid_by_plan(ada: Any) -> Exchange:
    """The call whose answer is the second message of a session of Ada."""
    session = create_chat(ada, "Hi?", "Hello.")
    answer = Message.objects.get(session=session, seq=2)
    metadata = {"billing": "plan", "list_price": "0.018000"}
    return Exchange.objects.create(
        session=session, owner=ada, message=answer, provider="plan", model="m", metadata=metadata,
        ended_at=timezone.now(), end_reason="done",
    )  # fmt: skip


def test_an_answer_shows_the_list_price_beside_a_plan(reader: Client, paid_by_plan: Exchange) -> None:
    page = read(reader, f"/s/{paid_by_plan.session_id}/")
    assert "plan (list price $0.0180)" in page
    Exchange.objects.update(metadata={"billing": "plan"})
    assert "<span>plan</span>" in read(reader, f"/s/{paid_by_plan.session_id}/")
    Exchange.objects.update(metadata={"list_price": "0.018"}, cost=Decimal("0.02"))
    page = read(reader, f"/s/{paid_by_plan.session_id}/")
    assert "$0.0200" in page
    assert "list price" not in page


def test_rest_says_how_an_exchange_was_billed(reader: Client, paid_by_plan: Exchange) -> None:
    address = f"/api/history/exchanges/{paid_by_plan.pk}"
    found = reader.get(address).json()
    assert (found["billing"], found["cost"], found["list_price"]) == ("plan", "0.000000", "0.018000")
    Exchange.objects.update(metadata={}, cost=Decimal("0.02"))
    found = reader.get(address).json()
    assert (found["billing"], found["cost"], found["list_price"]) == ("metered", "0.020000", None)


@pytest.mark.parametrize("price", ["NaN", "-1", "Infinity", "1e30", {"a": 1}, None, "x"])
def test_a_wrong_list_price_of_an_imported_file_is_none(paid_by_plan: Exchange, price: Any) -> None:
    paid_by_plan.metadata = {"billing": "plan", "list_price": price}
    assert paid_by_plan.list_price is None


def test_the_admin_shows_billing_and_list_price(client: Client, staff: Any, paid_by_plan: Exchange) -> None:
    staff.is_superuser = True
    staff.save()
    client.force_login(staff)
    assert "plan, list price $0.0180" in read(client, "/admin/history/exchange/")
    assert "plan, list price $0.0180" in read(client, f"/admin/history/exchange/{paid_by_plan.pk}/change/")
    Exchange.objects.update(metadata={})
    assert "list price" not in read(client, "/admin/history/exchange/")


def test_the_page_of_providers_offers_no_test_of_a_plan(client: Client, staff: Any, plans: None) -> None:
    client.force_login(staff)
    page = read(client, "/providers/")
    assert page.count("Callers use their own subscription here. Any model name is forwarded.") == 2
    named = Endpoint(
        name="plan",
        dialect="anthropic-messages",
        base_url="https://vendor.example",
        credentials="caller",
        models=(Model(name="m"),),
    )
    process_state.set(registry.Router([HttpProvider(named)]))
    assert "Callers use their own subscription here." in read(client, "/providers/")
    assert client.post("/providers/plan/try/", {"model": "m"}).status_code == 404
