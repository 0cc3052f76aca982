"""What models there are: each provider's own list, in the shape of its vendor, as far as it can chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import aiohttp

from history.dialects import DIALECTS
from history.dialects.json_access import as_bytes, count, items, obj, objs, parsed, string
from relay.errors import ProviderError, RequestRefused, error_of
from relay.providers import sessions
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, Patience, host_of
from relay.providers.event_stream import blotted, network_errors
from relay.providers.toml_config import LONGEST_MODEL
from relay.providers.vendors import is_openai

# A list is nice to have: nobody waits long for one, nor reads a book.
LIST_SECONDS = 5.0
LIST_BYTES = 8 * 1024 * 1024
PATHS = {
    "openai-chat": "/models",
    "openai-responses": "/models",
    "anthropic-messages": "/v1/models?limit=1000",
    "gemini-generate": "/v1beta/models?pageSize=1000",
}
# Which further dialects a server of a dialect may take, and where.
PROBES = {"openai-chat": {"openai-responses": "/responses"}}
NOT_THERE, COMPLAINTS = frozenset({404, 405, 410, 501}), frozenset({400, 415, 422})
_NO_CHAT = re.compile(
    r"embed|rerank|moderation|whisper|transcri|(^|[-_])tts|speech|realtime|audio|dall-e|image|video|veo|sora|imagen"
    r"|banana|-live|guard|davinci|babbage|-instruct$|computer-use|robotics",
    re.IGNORECASE,
)
_OPENAI_CHAT = re.compile(r"gpt-|o\d|chatgpt-|codex-|ft:")


async def list_models(endpoint: Endpoint) -> tuple[Model, ...]:
    """Raises a ProviderError where there is no list to be had."""
    url = endpoint.base_url + PATHS[endpoint.dialect]
    listed = await fetch(endpoint, url)
    if endpoint.dialect == "gemini-generate":
        found = list(map(_of_gemini, _for_chat_at_google(listed)))
    elif endpoint.dialect == "anthropic-messages":
        found = [_of_anthropic(item) for item in objs(listed.get("data")) if item.get("lifecycle") != "retired"]
    else:
        found = _like_openai(listed, endpoint)
    return tuple(model for model in found if 0 < len(model.name) <= LONGEST_MODEL)


async def probe_dialects(endpoint: Endpoint) -> tuple[str, ...] | None:
    """Which further dialects the server takes: it is sent an empty request, which no model answers. None: no telling.

    A server that knows the address complains about the request, one that does not says that nothing is there.
    """
    spoken = []
    for dialect, path in PROBES.get(endpoint.dialect, {}).items():
        try:
            await fetch(endpoint, endpoint.base_url + path, ask={})
        except ProviderError as error:
            if error.status in NOT_THERE:
                continue
            if error.status not in COMPLAINTS:
                return None
        spoken.append(dialect)
    return tuple(spoken)


def merged(known: Iterable[Model], listed: Iterable[Model], *, keeps_all: bool) -> tuple[Model, ...]:
    """Those that we know something about first, then the rest. `keeps_all`: also known ones that are not listed."""
    there = {model.name: model for model in listed}
    first = []
    for model in known:
        said = there.pop(model.name, None)
        if said is not None:
            first.append(replace(model, label=model.label or said.label, window=said.window or model.window))
        elif keeps_all:
            first.append(model)
    return (*first, *there.values())


async def fetch(endpoint: Endpoint, url: str, *, ask: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The JSON object at an address of this endpoint; with `ask`, by POST."""
    endpoint = replace(endpoint, patience=Patience(idle=LIST_SECONDS))
    with network_errors(endpoint, has_begun=False):
        async with sessions.session().request(
            "GET" if ask is None else "POST",
            url,
            data=None if ask is None else as_bytes(ask),
            headers={"Accept": "application/json", **endpoint.request_headers(endpoint.switches)},
            timeout=aiohttp.ClientTimeout(total=LIST_SECONDS),
            allow_redirects=False,
        ) as response:
            body = await response.content.read(LIST_BYTES)
            while not response.content.at_eof() and len(body) < LIST_BYTES:
                body += await response.content.read(LIST_BYTES - len(body))
    return _read(endpoint, response.status, body)


def _read(endpoint: Endpoint, status: int, body: bytes) -> Mapping[str, Any]:
    if status >= 400:
        failed = DIALECTS[endpoint.dialect].decode_error(status, body)
        raise error_of(blotted(failed, endpoint), provider=endpoint.name)
    try:
        listed = parsed(body)
    except ValueError:
        listed = None
    if status != 200 or not isinstance(listed, Mapping):
        raise _no_list(endpoint)
    return listed


def _no_list(endpoint: Endpoint) -> ProviderError:
    problem = f"{host_of(endpoint.base_url)} gives no list of models"
    return RequestRefused(problem, provider=endpoint.name, kind="not_found")


def _like_openai(listed: Mapping[str, Any], endpoint: Endpoint) -> list[Model]:
    """The newest first, where it says when they came."""
    found = [item for item in objs(listed.get("data")) if not _NO_CHAT.search(string(item.get("id")))]
    if is_openai(endpoint.base_url):
        found = [item for item in found if _OPENAI_CHAT.match(string(item.get("id")))]
    found.sort(key=lambda item: -count(item.get("created")))
    return [Model(name=string(item.get("id")), label=string(item.get("name")), window=_window(item)) for item in found]


def _window(item: Mapping[str, Any]) -> int:
    """vLLM, OpenRouter, Mistral and llama.cpp each have a word of their own for it; OpenAI has none."""
    names = ("max_model_len", "context_length", "max_context_length", "context_window")
    found = next((count(item[name]) for name in names if count(item.get(name))), 0)
    return found or count(obj(item.get("meta")).get("n_ctx_train"))


def _of_anthropic(item: Mapping[str, Any]) -> Model:
    images = obj(obj(item.get("capabilities")).get("image_input")).get("supported")
    return Model(
        name=string(item.get("id")),
        label=string(item.get("display_name")),
        window=count(item.get("max_input_tokens")),
        takes_images=images is not False,
    )


def _for_chat_at_google(listed: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    for item in objs(listed.get("models")):
        can_chat = "generateContent" in items(item.get("supportedGenerationMethods"))
        if can_chat and not _NO_CHAT.search(string(item.get("name"))):
            yield item


def _of_gemini(item: Mapping[str, Any]) -> Model:
    return Model(
        name=string(item.get("name")).removeprefix("models/"),
        label=string(item.get("displayName")),
        window=count(item.get("inputTokenLimit")),
    )
