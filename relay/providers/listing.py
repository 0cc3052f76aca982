"""Lists of models, fetched from each provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import aiohttp

from history.dialects import DIALECTS
from history.dialects.json_access import as_bytes, parsed
from relay.errors import ProviderError, RequestRefused, error_of
from relay.providers import sessions
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, Patience, host_of
from relay.providers.event_stream import mask_secrets, network_errors
from relay.providers.toml_config import LONGEST_MODEL
from relay.providers.vendors import is_offered_for_chat

# A list is nice to have: nobody waits long for one, nor reads a book.
LIST_SECONDS = 5.0
LIST_BYTES = 8 * 1024 * 1024
NOT_THERE, COMPLAINTS = frozenset({404, 405, 410, 501}), frozenset({400, 415, 422})


async def list_models(endpoint: Endpoint) -> tuple[Model, ...]:
    """Raises a ProviderError where there is no list to be had."""
    api = DIALECTS[endpoint.dialect].HTTP_API
    listed = api.read_models(await fetch(endpoint, endpoint.base_url + api.models_path))
    return tuple(
        Model(name=model.name, label=model.label, window=model.window, takes_images=model.takes_images)
        for model in listed
        if 0 < len(model.name) <= LONGEST_MODEL and is_offered_for_chat(model.name, endpoint.base_url)
    )


async def probe_dialects(endpoint: Endpoint) -> tuple[str, ...] | None:
    """Which further dialects the server takes: it is sent an empty request, which no model answers. None: no telling.

    A server that knows the address complains about the request, one that does not says that nothing is there.
    """
    spoken = []
    for dialect, path in DIALECTS[endpoint.dialect].HTTP_API.probe_paths.items():
        try:
            await fetch(endpoint, endpoint.base_url + path, ask={})
        except ProviderError as error:
            if error.status in NOT_THERE:
                continue
            if error.status not in COMPLAINTS:
                return None
        spoken.append(dialect)
    return tuple(spoken)


def merge_models(known: Iterable[Model], listed: Iterable[Model], *, keeps_all: bool) -> tuple[Model, ...]:
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
        raise error_of(mask_secrets(failed, endpoint), provider=endpoint.name)
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
