"""The file of PARLEY_PROVIDERS: what it can have, and that each mistake stops the start with one line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from history.dialects import Switches
from relay.errors import NoSuchModel
from relay.providers.endpoints import Endpoint, Timeouts
from relay.providers.http import HttpProvider
from relay.providers.registry import Router, router_from_settings
from relay.providers.toml_config import MODEL_KEYS, PROVIDER_KEYS, WrongProviders, read_file, read_routes, read_tables
from relay.providers.vendors import VENDORS
from tests.servers.processes import ROOT, load_settings

OLLAMA = 'name = "ollama"\ndialect = "openai-chat"\nbase_url = "http://127.0.0.1:11434/v1"\n'


def read(text: str, **variables: str) -> tuple[Endpoint, ...]:
    return read_tables(tomllib.loads(text), variables=lambda name: variables.get(name, ""))


def read_one(text: str, **variables: str) -> Endpoint:
    [endpoint] = read("[[providers]]\n" + text, **variables)
    return endpoint


def test_a_local_server_needs_a_name_a_language_and_an_address() -> None:
    endpoint = read_one(OLLAMA)
    assert (endpoint.name, endpoint.base_url) == ("ollama", "http://127.0.0.1:11434/v1")
    assert endpoint.is_configured
    assert endpoint.lists_models
    assert endpoint.switches == Switches(legacy_max_tokens=True)
    assert endpoint.request_headers(endpoint.switches) == {}


def test_models_are_names_or_tables_and_close_the_list() -> None:
    facts = "window = 8192, takes_tools = false, can_summarise = false, context_tokens = 500"
    models = f'models = ["a", {{ name = "b", label = "B", {facts} }}]'
    endpoint = read_one(OLLAMA + models)
    first, second = endpoint.models
    assert (first.name, first.takes_tools, first.window) == ("a", True, 0)
    assert (second.shown, second.window, second.takes_tools, second.context_tokens) == ("B", 8192, False, 500)
    assert (first.can_summarise, second.can_summarise) == (True, False)
    assert not endpoint.lists_models
    assert read_one(OLLAMA + models + "\nlist_models = true").lists_models


def test_a_key_is_written_or_named() -> None:
    assert read_one(OLLAMA + 'api_key = "abc"').api_key == "abc"
    named = read_one(OLLAMA + 'api_key_env = "BOX_KEY"', BOX_KEY="xyz")
    assert (named.api_key, named.is_configured) == ("xyz", True)
    missing = read_one(OLLAMA + 'api_key_env = "BOX_KEY"')
    assert (missing.is_configured, missing.key_variable) == (False, "BOX_KEY")


def test_a_known_vendor_can_be_changed_in_part() -> None:
    endpoint = read_one('name = "openai"\ndialect = "openai-chat"', OPENAI_API_KEY="sk-1")
    assert (endpoint.dialect, endpoint.base_url) == ("openai-chat", "https://api.openai.com/v1")
    assert (endpoint.api_key, endpoint.label) == ("sk-1", "OpenAI")
    assert endpoint.models == VENDORS[0].models
    assert endpoint.switches == Switches()
    assert not read_one('name = "anthropic"').is_configured
    [model] = read_one(f'name = "gemini"\nmodels = ["{VENDORS[2].models[0].name}"]').models
    assert model.window == VENDORS[2].models[0].window


def test_a_provider_that_takes_logins_has_no_key_of_the_operator_and_takes_any_model() -> None:
    endpoint = read_one('name = "anthropic"\ncredentials = "caller"', ANTHROPIC_API_KEY="sk-1")
    assert (endpoint.api_key, endpoint.key_variable, endpoint.takes_login) == ("", "", True)
    assert (endpoint.is_configured, endpoint.lists_models, endpoint.models) == (True, False, ())
    assert endpoint.request_headers(endpoint.switches) == {"anthropic-version": "2023-06-01"}
    assert not read_one(OLLAMA).takes_login
    named = read_one('name = "anthropic"\ncredentials = "caller"\nmodels = ["a"]')
    assert [model.name for model in named.models] == ["a"]


def test_chats_never_see_a_provider_that_takes_logins() -> None:
    plan = read_one('name = "anthropic"\ncredentials = "caller"\nmodels = ["claude-x"]')
    router = Router([HttpProvider(plan)])
    assert router.provider("anthropic") is None
    assert router.choices() == []
    for name in ("", "claude-x", "anthropic/claude-x"):
        with pytest.raises(NoSuchModel):
            router.route(name)
    assert [status.provider.name for status in router.providers()] == ["anthropic"]


def test_switches_headers_and_patience_are_as_written() -> None:
    more = 'headers = { X-Title = "Parley" }\nswitches = { reasoning_content = true, system_role = "remove" }\n'
    endpoint = read_one(OLLAMA + more + "connect_seconds = 2\nidle_seconds = 0.5\nattempts = 1")
    assert endpoint.headers == {"X-Title": "Parley"}
    assert endpoint.switches == Switches(legacy_max_tokens=True, reasoning_content=True, system_role="remove")
    assert endpoint.timeouts == Timeouts(connect=2, idle=0.5, attempts=1)


def test_the_order_of_the_file_comes_before_the_vendors(settings: Any) -> None:
    settings.PARLEY_PROVIDERS = read(f"[[providers]]\n{OLLAMA}models = ['a']\n[[providers]]\nname = 'gemini'\n")
    settings.OPENAI_API_KEY = "sk-1"
    router: Router = router_from_settings()
    assert [provider.name for provider in router.configured if not provider.is_demo] == ["ollama", "openai"]
    assert [endpoint.name for endpoint in router.unconfigured] == ["gemini", "anthropic"]


WRONG = {
    "roads = 1": "roads",
    "routes = 1": "[[routes]]",
    "[[routes]]\nmodel = 'x'": "to = ",
    "[[routes]]\nmodel = 'x'\nto = [1]": "provider/model",
    "[[routes]]\nmodel = 'x'\nto = [{ provider = 'Big Box' }]": "name of a provider",
    "[[routes]]\nmodel = 'x'\nto = [{ provider = 'box', weight = -1 }]": "weight",
    "[[routes]]\nmodel = 'x'\nto = [{ provider = 'box', weight = nan }]": "weight",
    "[[routes]]\nmodel = '*-mini'\nto = ['box']": "claude-*",
    "[[routes]]\nmodel = 'x'\nfrom = []\nto = ['box']": "from",
    "providers = 1": "[[providers]]",
    "[[providers]]\nlabel = 'x'": "name",
    "[[providers]]\nname = 'Big Box'": "name",
    "[[providers]]\nname = 'local'": "another name",
    f"[[providers]]\n{OLLAMA}[[providers]]\n{OLLAMA}": "twice",
    "[[providers]]\nname = 'x'\ndialect = 'openai-chat'": "base_url",
    "[[providers]]\nname = 'x'\ndialect = 'openai-chat'\nbase_url = 'ftp://x'": "base_url",
    "[[providers]]\nname = 'x'\nbase_url = 'http://x'": "openai-chat",
    "[[providers]]\nname = 'x'\ndialect = 'klingon'\nbase_url = 'http://x'": "klingon",
    f"[[providers]]\n{OLLAMA}modles = ['a']": "modles",
    f"[[providers]]\n{OLLAMA}models = 'a'": "models",
    f"[[providers]]\n{OLLAMA}models = [1]": "model 1",
    f"[[providers]]\n{OLLAMA}models = [{{ label = 'x' }}]": "name",
    f"[[providers]]\n{OLLAMA}models = [{{ name = 'x', windwo = 1 }}]": "windwo",
    f"[[providers]]\n{OLLAMA}models = [{{ name = 'x', window = 0 }}]": "window",
    f"[[providers]]\n{OLLAMA}models = [{{ name = 'x', window = true }}]": "window",
    f"[[providers]]\n{OLLAMA}api_key = 7": "api_key",
    f"[[providers]]\n{OLLAMA}api_key = 'a b'": "spaces",
    f"[[providers]]\n{OLLAMA}api_key = 'a'\napi_key_env = 'B'": "one of them",
    f"[[providers]]\n{OLLAMA}key_header = 'cookie'": "bearer",
    f"[[providers]]\n{OLLAMA}headers = {{ X = 'a\\u000Ab' }}".replace("'a\\u000Ab'", '"a\\nb"'): "header",
    f"[[providers]]\n{OLLAMA}switches = {{ turbo = true }}": "turbo",
    f"[[providers]]\n{OLLAMA}switches = {{ alternate_roles = 'yes' }}": "alternate_roles",
    f"[[providers]]\n{OLLAMA}switches = {{ system_role = 'king' }}": "developer",
    f"[[providers]]\n{OLLAMA}idle_seconds = 0": "idle_seconds",
    f"[[providers]]\n{OLLAMA}also_speaks = ['klingon']": "klingon",
    f"[[providers]]\n{OLLAMA}paths = ['files']": "/v1/files/*",
    f"[[providers]]\n{OLLAMA}paths = ['/v1/files*']": "/v1/files/*",
    f"[[providers]]\n{OLLAMA}attempts = 99": "attempts",
    f"[[providers]]\n{OLLAMA}credentials = 'mine'": "caller",
    f"[[providers]]\n{OLLAMA}credentials = 'caller'\napi_key = 'a'": "api_key",
    f"[[providers]]\n{OLLAMA}credentials = 'caller'\napi_key_env = 'A'": "api_key_env",
    f"[[providers]]\n{OLLAMA}credentials = 'caller'\npaths = ['/v1/files']": "paths",
    f"[[providers]]\n{OLLAMA}credentials = 'caller'\nlist_models = true": "list_models",
    f"[[providers]]\n{OLLAMA}credentials = 'caller'\nheaders = {{ authorization = 'x' }}": "header",
    f"[[providers]]\n{OLLAMA}credentials = 'caller'\nheaders = {{ ChatGPT-Account-Id = 'x' }}": "header",
    "[[providers]]\nname = 'x'\ndialect = 'openai-chat'\nbase_url = 'http://x.org'\ncredentials = 'caller'": "https",
    f"[[providers]]\n{OLLAMA}azure_api_version = '2024-10-21'": "deployments",
    "[[providers]]\nname = 'x'\ndialect = 'openai-responses'\nbase_url = 'http://x'\nazure_api_version = 'v'": "azure",
}


@pytest.mark.parametrize("text", WRONG)
def test_every_mistake_is_named_with_what_to_write(text: str) -> None:
    with pytest.raises(WrongProviders) as caught:
        (read(text), read_routes(tomllib.loads(text)))
    message = str(caught.value)
    assert WRONG[text] in message
    assert "write" in message
    assert "\n" not in message


def test_a_wrong_key_in_the_file_is_not_shown() -> None:
    with pytest.raises(WrongProviders) as caught:
        read_one(OLLAMA + 'api_key = ["sk-secret"]')
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("content", [b"[[providers]\n", b"\xff\xfe", b"[[providers]]\nname = 'x'\nmodles = []\n"])
def test_a_broken_file_stops_the_start_with_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "providers.toml"
    file.write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        load_settings(PARLEY_DATA_DIR=str(tmp_path), PARLEY_PROVIDERS=str(file))
    said = capsys.readouterr().err
    assert (stopped.value.code, said.count("\n")) == (2, 1), said
    assert "PARLEY_PROVIDERS" in said
    assert "write" in said


def test_a_key_named_in_the_file_may_stand_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text("[[providers]]\n" + OLLAMA + 'api_key_env = "BOX_KEY"\n', encoding="utf-8")
    variables = {"PARLEY_DATA_DIR": str(tmp_path), "PARLEY_PROVIDERS": str(file), "BOX_KEY": "key-of-the-box"}
    [endpoint] = load_settings(**variables)["PARLEY_PROVIDERS"]
    assert endpoint.api_key == "key-of-the-box"
    assert "key-of-the-box" not in repr(endpoint)


def test_the_example_in_the_docs_can_be_read_and_every_key_is_explained(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "providers.toml"
    file.write_text(example, encoding="utf-8")
    written = read_file(file, variables=lambda name: "key" if name.endswith("KEY") else "")
    assert len(written.providers) == 7
    assert [key for key in (*PROVIDER_KEYS, *MODEL_KEYS) if f"`{key}`" not in text] == []


def test_routes_are_read_as_the_docs_write_them() -> None:
    text = (ROOT / "docs" / "relay.md").read_text(encoding="utf-8")
    example = re.findall(r"```toml\n(\[\[routes\]\].*?)```", text, re.DOTALL)[0]
    local, alias = read_routes(tomllib.loads(example))
    assert (local.matches("claude-opus-5-5"), local.matches("gpt"), local.targets[0].model) == (True, False, "qwen3:8b")
    assert [(target.provider, target.weight) for target in alias.targets] == [
        ("openai", 3),
        ("azure", 1),
        ("openrouter", 0),
    ]
