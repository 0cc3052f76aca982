"""The staff's page of providers: what is set, what to set, and a button that tells the truth."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from history.db.process_state import process_state
from project.accounts.models import User
from relay.errors import Busy, Cut, ProviderError, RequestRefused, Unreachable, VendorFault
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.error_advice import advice_for_staff, error_summary, reason_of
from relay.providers.http import HttpProvider
from relay.providers.registry import Router
from tests.vendors import KEYS, Vendors, refuses, says
from tests.vendors.setup import endpoint_at

# Providers come from the settings.
pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
PAGE = "/providers/"


@pytest.fixture
def desk(client: Client, staff: User) -> Client:
    client.force_login(staff)
    return client


def page(desk: Client) -> str:
    response = desk.get(PAGE)
    assert response.status_code == 200
    return response.content.decode()


def try_it(desk: Client, name: str, *, model: str = "", htmx: bool = True) -> str:
    headers = {"HX-Request": "true"} if htmx else {}
    response = desk.post(f"{PAGE}{name}/try/", {"model": model}, headers=headers)
    assert response.status_code == 200
    assert "no-store" in response.headers["Cache-Control"]
    return response.content.decode()


def test_for_a_stranger_the_page_does_not_exist(client: Client, bob: User, vendors: Vendors, providers: Router) -> None:
    assert client.get(PAGE).headers["Location"].startswith("/accounts/signin/")
    client.force_login(bob)
    assert client.get(PAGE).status_code == 404
    assert client.post(f"{PAGE}anthropic/try/").status_code == 404
    assert client.get("/").content.decode().count("/providers/") == 0
    assert vendors.requests == []


def test_what_is_not_configured_says_which_variable_to_set(desk: Client) -> None:
    shown = page(desk)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "PARLEY_PROVIDERS"):
        assert name in shown
    assert shown.count("not configured") == 3
    assert "demo model" in shown
    assert "local/smollm2-135m-instruct" in shown


def test_what_is_configured_shows_its_address_and_models_and_no_key(
    desk: Client, vendors: Vendors, settings: Any
) -> None:
    settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL = KEYS["anthropic"], vendors.url
    vendors.models["anthropic"] = [{"id": "claude-x", "display_name": "Claude X", "max_input_tokens": 123_456}]
    registry.router().catalogue.refresh()
    shown = page(desk)
    assert "anthropic/claude-x" in shown
    assert "Claude X" in shown
    assert vendors.url in shown
    assert KEYS["anthropic"] not in shown
    assert shown.count("not configured") == 2


def test_without_anybody_the_page_says_so(desk: Client, settings: Any) -> None:
    settings.PARLEY_DEMO_MODEL = False
    assert "No provider is configured yet" in page(desk)


def test_the_button_makes_one_small_call_and_says_how_it_went(
    desk: Client, vendors: Vendors, providers: Router
) -> None:
    vendors.plays("anthropic-messages", replace(says("OK"), wait=0.1))
    row = try_it(desk, "anthropic")
    assert "It works." in row
    [seconds] = re.findall(r"model answered after ([\d.]+) s", row)
    assert 0.1 <= float(seconds) < 30
    assert "<html" not in row
    [seen] = vendors.requests
    assert seen.body["model"] == "model"
    assert seen.body["max_tokens"] <= 200


def test_without_javascript_the_button_gives_the_whole_page(desk: Client, vendors: Vendors, providers: Router) -> None:
    shown = try_it(desk, "gemini", htmx=False)
    assert "<html" in shown
    assert shown.count("It works.") == 1


def test_any_model_of_a_provider_can_be_tried_and_no_other(desk: Client, vendors: Vendors) -> None:
    models = (Model(name="model"), Model(name="second"))
    process_state.set(Router([HttpProvider(endpoint_at(vendors, "openai-chat", models=models))]))
    shown = try_it(desk, "openai-chat", model="second", htmx=False)
    assert '<option value="second" selected>' in shown
    assert vendors.requests[0].body["model"] == "second"
    for name, model in (("openai-chat", "third"), ("unknown", "model"), ("openai", "model")):
        assert desk.post(f"{PAGE}{name}/try/", {"model": model}).status_code == 404
    assert len(vendors.requests) == 1


def test_a_failure_is_told_in_words_with_what_to_do(desk: Client, vendors: Vendors) -> None:
    wrong = endpoint_at(vendors, "openai-responses", api_key="sk-wrong-0123456789", key_variable="OPENAI_API_KEY")
    process_state.set(Router([HttpProvider(wrong)]))
    row = try_it(desk, "openai")
    assert "The key was refused." in row
    assert "Check OPENAI_API_KEY" in row
    assert "sk-wrong" not in row
    assert "It works." not in row


def test_the_latest_error_stays_on_the_page_until_a_call_works(
    desk: Client, vendors: Vendors, providers: Router
) -> None:
    vendors.plays("gemini-generate", refuses("billing", "<b>No credit</b>"))
    try_it(desk, "gemini")
    shown = page(desk)
    assert "no credit left" in shown
    assert "&lt;b&gt;No credit&lt;/b&gt;" in shown
    try_it(desk, "gemini")
    assert "no credit left" not in page(desk)


def test_a_list_that_could_not_be_had_is_told(desk: Client, vendors: Vendors) -> None:
    endpoint = endpoint_at(vendors, "openai-chat", lists_models=True, base_url=vendors.url + "/nowhere")
    process_state.set(Router([HttpProvider(endpoint)]))
    registry.router().catalogue.refresh()
    assert "The list of models is not available." in page(desk)


def test_a_demo_model_that_cannot_run_says_what_is_missing(desk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.providers.registry.missing_packages", lambda: ["xllamacpp"])
    assert "xllamacpp is missing" in page(desk)


def test_a_call_that_takes_too_long_is_given_up(
    desk: Client, vendors: Vendors, providers: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.pages.providers.TIMEOUT_SECONDS", 0.3)
    vendors.plays("anthropic-messages", replace(says(*"slowly"), delay=1))
    assert "The provider took too long." in try_it(desk, "anthropic")


@pytest.mark.parametrize(
    "error",
    [
        *(VendorFault("x", kind=kind) for kind in ("server", "timeout")),
        *(Busy("x", kind="rate_limit", retry_after=wait) for wait in (None, 90.0)),
        *(RequestRefused("x", kind=kind) for kind in ("invalid_request", "context_length", "not_found")),
        Busy("x", kind="overloaded"),
        Unreachable("x"),
        Cut("x"),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.kind}",
)
def test_every_error_has_words_of_its_own(error: ProviderError) -> None:
    assert error_summary(error).endswith(".")
    assert advice_for_staff(error).endswith(".")


def test_connection_errors_are_in_the_readers_language() -> None:
    error = Unreachable("127.0.0.1:9 cannot be reached (no server is listening there)", provider="acme")
    error.host, error.reason = "127.0.0.1:9", "no server is listening there"
    assert reason_of(error) == error.message
    with translation.override("zh-hans"):
        assert reason_of(error) == "无法连接 127.0.0.1:9（该地址没有服务在监听）"
