"""Local model servers: Ollama and LM Studio, discovered at their usual ports."""

import asyncio
import re
from collections.abc import Iterable

from history.dialects import Switches
from history.dialects.json_access import as_count, items, obj, objs, string
from history.entries import JsonObject
from relay.errors import ProviderError
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint
from relay.providers.http import fetch
from relay.providers.toml_config import LONGEST_MODEL

OLLAMA, LM_STUDIO = (
    Endpoint(
        name=name,
        label=label,
        dialect="openai-chat",
        base_url=f"http://127.0.0.1:{port}/v1",
        switches=Switches(legacy_max_tokens=True),
    )
    for name, label, port in (("ollama", "Ollama", 11434), ("lmstudio", "LM Studio", 1234))
)
LOCAL_SERVERS = (OLLAMA, LM_STUDIO)
MOST_MODELS = 50  # each model takes a request


async def list_local_models(endpoint: Endpoint) -> tuple[Model, ...]:
    try:
        found = await (_of_ollama(endpoint) if endpoint.name == OLLAMA.name else _of_lm_studio(endpoint))
    except ProviderError:
        return ()
    return tuple(model for model in found if 0 < len(model.name) <= LONGEST_MODEL)


async def _of_ollama(endpoint: Endpoint) -> Iterable[Model]:
    root = endpoint.base_url.removesuffix("/v1")
    listed = await fetch(endpoint, f"{root}/api/tags")
    names = [string(item.get("name")) for item in objs(listed.get("models"))[:MOST_MODELS]]
    details = await asyncio.gather(*(_fetch_details(endpoint, f"{root}/api/show", name) for name in names))
    # Older versions of Ollama do not list capabilities.
    return [
        _ollama_model(name, about)
        for name, about in zip(names, details, strict=True)
        if "capabilities" not in about or "completion" in items(about["capabilities"])
    ]


async def _fetch_details(endpoint: Endpoint, url: str, name: str) -> JsonObject:
    try:
        return await fetch(endpoint, url, body={"model": name})
    except ProviderError:
        return {}


def _ollama_model(name: str, about: JsonObject) -> Model:
    can = items(about.get("capabilities"))
    details = obj(about.get("model_info"))
    trained = next((as_count(value) for key, value in details.items() if key.endswith(".context_length")), 0)
    set_to = re.search(r"^num_ctx\s+(\d{1,9})$", string(about.get("parameters")), re.MULTILINE)
    window = int(set_to[1]) if set_to else trained
    return Model(name=name, window=window, takes_tools="tools" in can, takes_images="vision" in can)


async def _of_lm_studio(endpoint: Endpoint) -> Iterable[Model]:
    listed = await fetch(endpoint, f"{endpoint.base_url.removesuffix('/v1')}/api/v0/models")
    return [
        Model(
            name=string(item.get("id")),
            window=as_count(item.get("loaded_context_length")) or as_count(item.get("max_context_length")),
            takes_tools="tool_use" in items(item.get("capabilities")),
            takes_images=item.get("type") == "vlm",
        )
        for item in objs(listed.get("data"))[:MOST_MODELS]
        if item.get("type") in ("llm", "vlm")
    ]
