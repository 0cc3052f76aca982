"""What is only passed on: embeddings, moderations, sounds, pictures. No list of those that chat names their models."""

from typing import Any

import openai
import pytest
from aiohttp import web

from history.db.process_state import process_state
from relay.gateway import routes
from relay.providers import registry
from relay.providers.base import Model, Rule, Target
from relay.providers.http import HttpProvider
from tests.clients import RunningRelay, send_request
from tests.vendors import Vendors
from tests.vendors.setup import endpoint_at

# What passes through on the wire is the same on every database.
pytestmark = pytest.mark.any_database

CHAT = "openai-chat"
VECTORS = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"}


def at(vendors: Vendors, name: str, **changes: Any) -> HttpProvider:
    """As an operator has it who only set a key: what chats is listed, other models may be there."""
    given = {"dialect": CHAT, "lists_models": True, **changes}
    return HttpProvider(endpoint_at(vendors, given.pop("dialect"), name=name, **given))


@pytest.fixture
def of_openai(relay: RunningRelay, key: str) -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=f"{relay.url}/v1", max_retries=0)


def test_a_model_that_does_not_chat_is_found_at_its_vendor(of_openai: openai.OpenAI, vendors: Vendors) -> None:
    process_state.set(registry.Router([at(vendors, "vllm", base_url="http://127.0.0.1:1/v1"), at(vendors, "openai")]))
    vendors.pages |= {
        "/v1/embeddings": VECTORS,
        "/v1/moderations": {"id": "modr-1", "model": "m", "results": []},
        "/v1/images/generations": {"created": 1, "data": [{"url": "http://127.0.0.1/a.png"}]},
    }
    made = of_openai.embeddings.create(model="text-embedding-3-small", input="hi", encoding_format="float")
    assert made.data[0].embedding == [0.5]
    assert of_openai.moderations.create(model="omni-moderation-latest", input="hi").id == "modr-1"
    pictures = of_openai.images.generate(model="dall-e-3", prompt="a cat").data or []
    assert pictures[0].url == "http://127.0.0.1/a.png"


def test_so_is_the_model_of_a_form(of_openai: openai.OpenAI, vendors: Vendors) -> None:
    process_state.set(registry.Router([at(vendors, "openai")]))
    vendors.pages["/v1/audio/transcriptions"] = {"text": "hello"}
    made = of_openai.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"RIFF\xff\xfe\x00", "audio/wav"))
    assert made.text == "hello"


def test_weights_share_calls_and_a_failed_provider_is_skipped(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    unreachable = at(vendors, "unreachable", base_url="http://127.0.0.1:1/v1")
    process_state.set(registry.Router([at(vendors, "first"), at(vendors, "second"), unreachable]))
    vendors.pages["/v1/embeddings"] = VECTORS
    names = ("first", "second", "unreachable")
    settings.PARLEY_ROUTES = (Rule(model="bge", targets=tuple(Target(provider=name) for name in names)),)
    shares = [routes.passthrough_upstreams(CHAT, model="bge", affinity=str(number).encode)[0] for number in range(50)]
    assert {upstream.provider.name for upstream in shares} == set(names)
    for _ in range(50):  # each of three is asked first, sooner or later
        if process_state.get(routes.Cooldowns):
            break
        assert send_request(relay, "/v1/embeddings", {"model": "bge", "input": "hi"}, x_api_key=key).status == 200
    assert list(process_state.get(routes.Cooldowns)) == [("unreachable", "bge")]


def test_what_is_refused_says_nothing_of_how_the_model_chats(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    """Only that it answers, is busy or is broken does: a model without embeddings, or a key for none, may chat."""
    process_state.set(registry.Router([at(vendors, "first")]))
    settings.PARLEY_ROUTES = (Rule(model="both", targets=(Target(provider="first"),)),)

    def is_left_alone(status: int, *, before: bool) -> bool:
        process_state.reset(routes.Cooldowns)
        if before:
            routes.start_cooldown(routes.passthrough_upstreams(CHAT, model="both", affinity=bytes)[0], seconds=None)
        page = VECTORS if status == 200 else {"error": {"message": "No."}}
        vendors.pages["/v1/embeddings"] = web.json_response(page, status=status)
        assert send_request(relay, "/v1/embeddings", {"model": "both", "input": "hi"}, x_api_key=key).status == status
        return bool(process_state.get(routes.Cooldowns))

    for status in (400, 401, 402, 403, 404, 422, 501):
        assert [is_left_alone(status, before=before) for before in (True, False)] == [True, False], status
    for status in (408, 429, 500, 503, 529):
        assert is_left_alone(status, before=False), status
    assert not is_left_alone(200, before=True)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("vllm/bge-m3", {"name": "vllm", "lists_models": False}),  # says itself who is meant
        ("ruled", {"name": "vllm"}),
        ("bge-m3", {"name": "vllm", "lists_models": False}),  # its operator has named all that it has
        ("claude", {"name": "anthropic", "dialect": "anthropic-messages", "models": (Model(name="claude"),)}),
    ],
)
def test_model_without_a_provider_is_not_found(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any, model: str, provider: dict[str, Any]
) -> None:
    settings.PARLEY_ROUTES = (Rule(model="ruled", targets=(Target(provider="unreachable"),)),)
    vendors.pages["/v1/embeddings"] = VECTORS
    beside = [at(vendors, "openai")] if model != "bge-m3" else []
    process_state.set(registry.Router([at(vendors, **provider), *beside]))
    assert send_request(relay, "/v1/embeddings", {"model": model, "input": "hi"}, x_api_key=key).status == 404
