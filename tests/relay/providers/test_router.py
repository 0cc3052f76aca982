"""Which provider answers to a name, what is offered, and what the settings make of it (S2.48)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from history.db.process_state import process_state
from relay.errors import NoSuchModel
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint
from relay.providers.http import HttpProvider
from relay.providers.registry import Router
from relay.providers.vendors import local_servers
from tests.relay.providers.provider_calls import call_provider
from tests.relay.providers.scripted import ScriptedProvider
from tests.servers.processes import wait_for
from tests.vendors import KEYS, Vendors
from tests.vendors.setup import endpoint_at

BIG = ScriptedProvider(name="big", models=[Model(name="large", label="Large"), Model(name="small")])
OTHER = ScriptedProvider(name="other", models=[Model(name="small"), Model(name="meta/llama")])
DEMO = ScriptedProvider(name="local", models=[Model(name="toy")], is_demo=True)


def names(router: Router) -> list[str]:
    return [route.name for group in router.choices() for route in group.routes]


# Names


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ("big/small", "big/small"),
        ("other/small", "other/small"),
        ("small", "big/small"),
        ("meta/llama", "other/meta/llama"),
        ("other/meta/llama", "other/meta/llama"),
        ("toy", "local/toy"),
        ("", "big/large"),
    ],
)
def test_a_model_is_named_with_its_provider_or_without_or_not_at_all(result: str, found: str) -> None:
    assert Router([DEMO, BIG, OTHER]).route(result).name == found


@pytest.mark.parametrize("result", ["nothing", "big/nothing", "missing/small", "big/", "/small"])
def test_model_that_no_provider_offers_is_missing(result: str) -> None:
    with pytest.raises(NoSuchModel, match=result):
        Router([BIG, DEMO]).route(result)


def test_without_any_provider_there_is_no_default() -> None:
    with pytest.raises(NoSuchModel, match="no provider is configured"):
        Router([]).route()


def test_the_demo_model_is_the_default_only_where_there_is_nothing_else() -> None:
    assert Router([DEMO]).route().name == "local/toy"
    assert Router([DEMO, OTHER]).route().name == "other/small"


def test_choices_are_grouped_by_provider_with_the_default_first() -> None:
    groups = Router([DEMO, BIG, ScriptedProvider(name="empty", models=[])]).choices()
    assert [group.provider.name for group in groups] == ["big", "local"]
    assert [(route.name, route.model.shown) for route in groups[0].routes] == [
        ("big/large", "Large"),
        ("big/small", "small"),
    ]


# From the settings


def test_without_a_key_every_vendor_is_shown_with_the_variable_to_set(settings: Any) -> None:
    endpoints = [item.provider.endpoint for item in registry.router().providers()]
    assert {endpoint.name: endpoint.key_variable for endpoint in endpoints if not endpoint.is_configured} == {
        "openai": "OPENAI_API_KEY",
        "anthropic": "ANTHROPIC_API_KEY",
        "gemini": "GEMINI_API_KEY",
    }


def test_a_key_is_all_that_a_known_vendor_needs(settings: Any) -> None:
    settings.ANTHROPIC_API_KEY = "sk-ant-0123456789"
    settings.GEMINI_API_KEY = "AIza0123456789"
    router = registry.router()
    assert router.route().provider.name == "anthropic"
    assert router.route("claude-of-tomorrow").name == "anthropic/claude-of-tomorrow"
    assert router.route("gemini-flash-latest").provider.dialect == "gemini-generate"
    with pytest.raises(NoSuchModel):
        router.route("gpt-6-luna")
    assert "sk-ant" not in repr(router.configured[0].endpoint)


def test_openai_speaks_responses_at_home_and_chat_elsewhere(settings: Any) -> None:
    settings.OPENAI_API_KEY = "sk-0123456789"
    assert registry.router().route("openai/gpt-x").provider.dialect == "openai-responses"
    settings.OPENAI_BASE_URL = "http://127.0.0.1:8080/v1"
    process_state.reset(registry.Router)
    elsewhere = registry.router().route("openai/llama").provider
    assert isinstance(elsewhere, HttpProvider)
    assert elsewhere.dialect == "openai-chat"
    assert elsewhere.endpoint.switches.legacy_max_tokens


def test_a_server_of_ones_own_needs_no_key(settings: Any) -> None:
    settings.OPENAI_BASE_URL = "http://127.0.0.1:8080/v1"
    assert "openai" in [provider.name for provider in registry.router().configured]


def test_the_router_is_made_once_and_again_when_told(settings: Any) -> None:
    first = registry.router()
    assert registry.router() is first
    process_state.reset(registry.Router)
    assert registry.router() is not first


async def test_settings_lead_to_an_answer(settings: Any, vendors: Vendors) -> None:
    settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = KEYS["openai"], vendors.url + "/v1"
    route = registry.router().route("openai/gpt-x")
    assert (await call_provider(route.provider, model=route.model.name)).text == "Hello."
    assert vendors.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(("path", "spoken"), [("/v1", ("openai-responses",)), ("/elsewhere", ())])
def test_a_base_url_alone_is_asked_whether_it_takes_responses(
    settings: Any, vendors: Vendors, path: str, spoken: tuple[str, ...]
) -> None:
    settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = KEYS["openai"], vendors.url + path
    router = registry.router()
    provider = router.provider("openai")
    assert provider is not None
    # Not from `router.providers()`: its thread may have asked already.
    status = registry.ProviderStatus(provider=provider, is_found=False, list_error=None)
    assert (status.also_speaks, status.translates_responses) == ((), True)
    router.catalogue.refresh()
    assert (status.also_speaks, status.translates_responses) == (spoken, not spoken)
    assert vendors.requests == []


def test_what_cannot_be_found_out_changes_nothing(settings: Any, vendors: Vendors) -> None:
    settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = "wrong", vendors.url + "/elsewhere"
    vendors.pages["/elsewhere/responses"] = web.json_response({"error": {"message": "Who are you?"}}, status=401)
    provider = registry.router().provider("openai")
    assert isinstance(provider, HttpProvider)
    provider.endpoint = replace(provider.endpoint, also_speaks=("openai-responses",))
    registry.router().catalogue.refresh()
    assert provider.endpoint.also_speaks == ("openai-responses",)


# What is really there


def listing(vendors: Vendors, dialect: str, **changes: Any) -> Router:
    endpoint = endpoint_at(vendors, dialect, lists_models=True, models=(), **changes)
    router = Router([HttpProvider(endpoint)])
    router.catalogue.refresh()
    return router


def test_openais_list_is_offered_as_far_as_it_can_chat(vendors: Vendors) -> None:
    vendors.models["openai"] = [
        {"id": "old", "created": 1},
        {"id": "new", "created": 2, "max_model_len": 4096},
        {"id": "text-embedding-3", "created": 3},
        {"id": "whisper-1", "created": 3},
    ]
    [group] = listing(vendors, "openai-chat").choices()
    assert [(route.model.name, route.model.window) for route in group.routes] == [("new", 4096), ("old", 0)]


def test_anthropics_list_has_names_for_people_and_windows(vendors: Vendors) -> None:
    vendors.models["anthropic"] = [
        {"id": "claude-x", "display_name": "Claude X", "max_input_tokens": 500_000, "lifecycle": "active"},
        {"id": "claude-1", "display_name": "Claude 1", "lifecycle": "retired"},
    ]
    [group] = listing(vendors, "anthropic-messages").choices()
    assert [(route.model.shown, route.model.window) for route in group.routes] == [("Claude X", 500_000)]


def test_googles_list_has_only_what_generates_content(vendors: Vendors) -> None:
    can = {"supportedGenerationMethods": ["generateContent"]}
    vendors.models["gemini"] = [
        {"name": "models/gemini-x", "displayName": "Gemini X", "inputTokenLimit": 1000, **can},
        {"name": "models/gemini-x-tts", **can},
        {"name": "models/embedding-1", "supportedGenerationMethods": ["embedContent"]},
    ]
    assert names(listing(vendors, "gemini-generate")) == ["gemini/gemini-x"]


def test_guessed_models_that_do_not_exist_go_and_written_ones_stay(vendors: Vendors) -> None:
    vendors.models["openai"] = [{"id": "b"}, {"id": "c", "context_length": 9}]
    ours = (Model(name="a"), Model(name="c", label="See"))
    for guessed, left in ((True, ["c", "b"]), (False, ["a", "c", "b"])):
        endpoint = endpoint_at(vendors, "openai-chat", lists_models=True, models=ours, models_are_guessed=guessed)
        provider = HttpProvider(endpoint)
        Router([provider]).catalogue.refresh()
        assert [model.name for model in provider.models] == left
        assert provider.models[-2].label == "See"
        assert provider.models[-2].window == 9


def test_a_list_that_cannot_be_had_changes_nothing_and_is_told(vendors: Vendors) -> None:
    broken = endpoint_at(vendors, "openai-chat", lists_models=True, api_key="wrong-key-0123")
    router = Router([HttpProvider(broken)])
    router.catalogue.refresh()
    assert names(router) == ["openai-chat/model"]
    [standing] = router.providers()
    assert standing.list_error is not None
    assert standing.list_error.kind == "authentication"


def test_lists_are_fetched_without_waiting(vendors: Vendors) -> None:
    """Reading is at once, with what is known; the list comes in the background."""
    vendors.models["openai"], vendors.models_wait = [{"id": "new"}], True
    endpoint = endpoint_at(vendors, "openai-chat", lists_models=True, models_are_guessed=True)
    router = Router([HttpProvider(endpoint)])
    assert names(router) == ["openai-chat/model"]
    assert [standing.list_error for standing in router.providers()] == [None]
    vendors.models_wait = False
    wait_for(lambda: names(router) == ["openai-chat/new"], seconds=10)


def test_a_provider_that_lists_takes_names_that_it_does_not_list(vendors: Vendors) -> None:
    vendors.models["openai"] = [{"id": "known", "context_length": 77}]
    router = listing(vendors, "openai-chat")
    assert router.route("openai-chat/known").model.window == 77
    assert router.route("openai-chat/fine-tuned").model.name == "fine-tuned"


# What runs on this machine


def at(place: Endpoint, vendors: Vendors) -> Endpoint:
    return replace(place, base_url=vendors.url + "/v1")


def test_an_ollama_nearby_is_offered_with_what_its_models_can_do(vendors: Vendors) -> None:
    about: dict[str, dict[str, Any]] = {
        "llama3:8b": {"capabilities": ["completion", "tools"], "model_info": {"llama.context_length": 8192}},
        "llava": {"capabilities": ["completion", "vision"], "parameters": "stop x\nnum_ctx 2048"},
        "nomic": {"capabilities": ["embedding"]},
    }
    vendors.pages["/api/tags"] = {"models": [{"name": name} for name in about]}
    vendors.pages["/api/show"] = lambda body: about[body["model"]]
    router = Router([DEMO], nearby=[at(local_servers.OLLAMA, vendors)])
    router.catalogue.refresh()
    assert names(router) == ["local/toy", "ollama/llama3:8b", "ollama/llava"]
    llama, llava = (router.route(name).model for name in ("llama3:8b", "llava"))
    assert (llama.window, llama.takes_tools, llama.takes_images) == (8192, True, False)
    assert (llava.window, llava.takes_tools, llava.takes_images) == (2048, False, True)
    assert [standing.is_found for standing in router.providers()] == [False, True]
    del vendors.pages["/api/tags"]
    router.catalogue.refresh()
    assert names(router) == ["local/toy"]


def test_an_lm_studio_nearby_is_offered(vendors: Vendors) -> None:
    vendors.pages["/api/v0/models"] = {
        "data": [
            {"id": "qwen", "type": "llm", "max_context_length": 32768, "capabilities": ["tool_use"]},
            {"id": "embed", "type": "embeddings"},
        ]
    }
    router = Router([], nearby=[at(local_servers.LM_STUDIO, vendors)])
    router.catalogue.refresh()
    assert names(router) == ["lmstudio/qwen"]
    assert router.route().name == "lmstudio/qwen"


def test_another_server_at_that_port_is_ignored(vendors: Vendors) -> None:
    vendors.pages["/api/tags"] = web.Response(text="<html>", content_type="text/html")
    places = [at(local_servers.OLLAMA, vendors), replace(local_servers.LM_STUDIO, base_url="http://127.0.0.1:1/v1")]
    router = Router([], nearby=places)
    router.catalogue.refresh()
    assert router.choices() == []


def test_what_was_configured_is_not_offered_twice(vendors: Vendors) -> None:
    configured = HttpProvider(endpoint_at(vendors, "openai-chat"))
    assert Router([configured], nearby=[at(local_servers.OLLAMA, vendors)]).catalogue.nearby == []


def test_looking_around_can_be_switched_off(settings: Any) -> None:
    assert registry.router().catalogue.nearby == []
    settings.PARLEY_FIND_LOCAL_MODELS = True
    process_state.reset(registry.Router)
    assert [place.name for place in registry.router_from_settings().catalogue.nearby] == ["ollama", "lmstudio"]
