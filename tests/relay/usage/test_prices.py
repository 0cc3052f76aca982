"""What a call costs: each token once, by whichever vendor's count; the operator's prices before ours."""

import tomllib
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from history.dialects.anthropic_messages.reply_reader import usage_from as anthropic_usage
from history.dialects.gemini_generate.reply_reader import usage_from as gemini_usage
from history.dialects.openai_common import usage_from_chat as chat_usage, usage_from_responses as responses_usage
from history.entries import Usage
from relay.providers.vendors import VENDORS
from relay.usage.prices import SHIPPED, Price, WrongPrices, cost_of, price_of, read_prices

PRICE = Price(
    model="m*",
    input=Decimal(10),
    output=Decimal(100),
    cache_read=Decimal(1),
    cache_write=Decimal(20),
    cache_write_1h=Decimal(40),
)


@pytest.fixture(autouse=True)
def _prices(settings: Any) -> None:
    settings.PARLEY_PRICES = (PRICE,)


def cost(usage: Usage) -> Decimal:
    return cost_of(usage, provider="acme", model="model") * 1_000_000


def test_anthropic_counts_the_cache_beside_the_input() -> None:
    raw = {
        "input_tokens": 100,
        "cache_read_input_tokens": 1_000,
        "cache_creation_input_tokens": 200,
        "cache_creation": {"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
        "output_tokens": 10,
    }
    assert cost(anthropic_usage(raw)) == 100 * 10 + 1_000 * 1 + 150 * 20 + 50 * 40 + 10 * 100


def test_openai_counts_the_cache_within_the_input() -> None:
    chat = {"prompt_tokens": 1_100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 1_000}}
    assert cost(chat_usage(chat)) == 100 * 10 + 1_000 * 1 + 10 * 100
    responses = {"input_tokens": 1_100, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 1_000}}
    assert cost(responses_usage(responses)) == 100 * 10 + 1_000 * 1 + 10 * 100


def test_gemini_counts_thoughts_beside_the_answer() -> None:
    raw = {
        "promptTokenCount": 1_100,
        "cachedContentTokenCount": 1_000,
        "candidatesTokenCount": 6,
        "thoughtsTokenCount": 4,
    }
    assert cost(gemini_usage(raw)) == 100 * 10 + 1_000 * 1 + 10 * 100


def test_the_price_table_covers_what_programs_ask_for_beyond_the_three_vendors(settings: Any) -> None:
    settings.PARLEY_PRICES = ()
    for provider, model in (
        ("deepseek", "deepseek-chat"),
        ("mistral", "mistral-large-latest"),
        ("openrouter", "openai/gpt-4o-mini"),
        ("anthropic", "claude-opus-4-8-20260101"),
    ):
        price = price_of(provider=provider, model=model)
        assert price is not None, model
        assert price.output > 0


def test_models_on_this_machine_are_free_also_under_a_money_budget(settings: Any) -> None:
    settings.PARLEY_PRICES = ()
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    for provider in ("local", "ollama", "lmstudio"):
        assert cost_of(usage, provider=provider, model="qwen3:8b", has_money_budget=True) == 0
    assert cost_of(usage, provider="acme", model="qwen3:8b", has_money_budget=True) == 90


def test_a_model_without_a_price_costs_nothing() -> None:
    assert cost_of(Usage(input_tokens=9, output_tokens=9), provider="acme", model="unheard-of") == 0
    assert price_of(provider="acme", model="unheard-of") is None


def test_the_operators_price_comes_first_and_the_one_that_fits_best(settings: Any) -> None:
    def price(model: str, amount: int, **more: Any) -> Price:
        return Price(model=model, input=Decimal(amount), **more)

    settings.PARLEY_PRICES = (
        price("claude-*", 1),
        price("claude-opus-5-5", 2),
        price("claude-opus-5-5", 3, since=date(2027, 1, 1)),
        price("claude-opus-5-5", 4, provider="cheap"),
        price("claude-opus-5-5", 5, above=1_000),
    )

    def found(model: str, provider: str = "anthropic", on: date = date(2026, 11, 1), tokens: int = 0) -> Decimal:
        price = price_of(provider=provider, model=model, on=on, tokens=tokens)
        assert price is not None
        return price.input

    assert found("claude-sonnet-5-5") == 1
    assert found("claude-opus-5-5") == 2
    assert found("claude-opus-5-5", on=date(2027, 2, 1)) == 3
    assert found("claude-opus-5-5", provider="cheap") == 4
    assert found("claude-opus-5-5", tokens=1_001) == 5


def test_a_longer_name_comes_before_a_provider_and_a_whole_name_before_a_beginning(settings: Any) -> None:
    settings.PARLEY_PRICES = (
        Price(model="claude-*", provider="anthropic", input=Decimal(1)),
        Price(model="claude-opus-5-5*", provider="anthropic", input=Decimal(2)),
        Price(model="claude-opus-5-5", input=Decimal(3)),
        Price(model="claude-opus*", input=Decimal(4)),
        Price(model="claude-opus*", provider="anthropic", input=Decimal(5)),
    )
    found = [
        price_of(provider="anthropic", model=f"claude-{name}") for name in ("opus-5-5", "opus-5-5-1", "opus-6", "x")
    ]
    assert [price and price.input for price in found] == [3, 2, 5, 1]


def test_the_well_known_models_have_prices(settings: Any) -> None:
    settings.PARLEY_PRICES = ()
    unpriced = {
        model.name
        for vendor in VENDORS
        for model in vendor.models
        if price_of(provider=vendor.name, model=model.name) is None
    }
    assert unpriced == set()
    assert "genai-prices" in SHIPPED.read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.parametrize(
    ("alias", "model"),
    [
        ("gemini-flash-latest", "gemini-3.8-flash"),
        ("gemini-flash-lite-latest", "gemini-3.5-flash-lite"),
        ("gemini-pro-latest", "gemini-3.1-pro-preview"),
    ],
)
@pytest.mark.parametrize("tokens", [1, 300_000])
def test_a_name_without_a_number_costs_what_the_newest_of_its_kind_does(
    alias: str, model: str, tokens: int, settings: Any
) -> None:
    settings.PARLEY_PRICES = ()
    price = price_of(provider="gemini", model=model, tokens=tokens)
    assert price is not None
    assert price_of(provider="gemini", model=alias, tokens=tokens) == replace(price, model=alias)


@pytest.mark.parametrize(
    "model",
    ["claude-opus-5-5", "claude-opus-4-8", "gemini-3.8-flash", "gemini-3.5-flash-lite", "gemini-3.1-pro-preview"],
)
def test_the_models_that_the_clients_ask_for_have_prices(model: str, settings: Any) -> None:
    settings.PARLEY_PRICES = ()
    assert price_of(provider="any", model=model) is not None


WRONG = {
    "prices = 1": "[[prices]]",
    "[[price]]\nmodel = 'x'\ninput = 1": "[[prices]]",
    "[[prices]]\nmodel = 'claude-*-5'\ninput = 1": "beginning*",
    "[[prices]]\ninput = 1": "model",
    "[[prices]]\nmodel = 'x'\ninptu = 1": "inptu",
    "[[prices]]\nmodel = 'x'\ninput = '1'": "input",
    "[[prices]]\nmodel = 'x'\ninput = -1": "input",
    "[[prices]]\nmodel = 'x'\ninput = inf": "input",
    "[[prices]]\nmodel = 'x'\ninput = nan": "input",
    "[[prices]]\nmodel = 'x'\nabove = 2.5": "whole number",
    "[[prices]]\nmodel = 'x'\nsince = 'now'": "since",
    "[[prices]]\nmodel = 'x'\nsince = 2026-09-01T00:00:00": "a day without a time, like 2026-09-01",
    "[[prices]]\nmodel = 1": "a name in quotes",
    "[[prices]": "TOML",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_price_is_named_with_what_to_write(text: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(WrongPrices, match="write") as caught:
        read_prices(file)
    assert WRONG[text] in str(caught.value)


def test_the_example_in_the_docs_can_be_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "relay.md").read_text(encoding="utf-8")
    example = text.partition("## Prices")[2].partition("```toml")[2].partition("```")[0]
    assert set(tomllib.loads(example)["prices"][0]) == set(Price.__dataclass_fields__)
    (tmp_path / "prices.toml").write_text(example, encoding="utf-8")
    assert read_prices(tmp_path / "prices.toml")[0].cache_write_1h == 4
