"""Catalogue of available models, refreshed in the background.

Readers get the latest known state. A provider whose list cannot be fetched keeps its models, and the error is shown to
staff. Local servers appear while they answer at their usual port.
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from history.dialects import DIALECTS
from relay.errors import ProviderError, detached
from relay.providers import sessions
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, host_of
from relay.providers.http import HttpProvider, fetch
from relay.providers.toml_config import LONGEST_MODEL
from relay.providers.vendors import is_offered_for_chat
from relay.providers.vendors.local_servers import list_local_models

FRESH_SECONDS = 300.0
NOT_THERE, COMPLAINTS = frozenset({404, 405, 410, 501}), frozenset({400, 415, 422})


class Catalogue:
    """Lists of `providers`, and of servers that may run at the addresses `nearby`."""

    def __init__(self, providers: Sequence[HttpProvider], *, nearby: Sequence[Endpoint] = ()) -> None:
        self.listing = [provider for provider in providers if provider.endpoint.lists_models]
        known = {provider.name for provider in providers} | {host_of(p.endpoint.base_url) for p in providers}
        self.nearby = [place for place in nearby if not {place.name, host_of(place.base_url)} & known]
        self.found: tuple[HttpProvider, ...] = ()
        self.errors: dict[str, ProviderError] = {}
        self._refreshed_at: float | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def refresh_if_stale(self) -> None:
        """Returns at once: a thread fetches the lists."""
        if self._refreshed_at is not None and time.monotonic() - self._refreshed_at <= FRESH_SECONDS:
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self.refresh, name="list models", daemon=True)
                self._thread.start()

    def refresh(self) -> None:
        self._refreshed_at = time.monotonic()
        if self.listing or self.nearby:
            asyncio.run(self._refresh())

    async def _refresh(self) -> None:
        try:
            await asyncio.gather(self._find_nearby(), *(self._fetch_list(provider) for provider in self.listing))
        finally:
            await sessions.close()

    async def _fetch_list(self, provider: HttpProvider) -> None:
        endpoint = provider.endpoint
        if endpoint.probes_dialects and (spoken := await probe_dialects(endpoint)) is not None:
            provider.endpoint = endpoint = replace(endpoint, also_speaks=spoken)
        try:
            listed = await list_models(endpoint)
        except ProviderError as error:
            self.errors[provider.name] = detached(error)
            return
        self.errors.pop(provider.name, None)
        merged = merge_models(endpoint.models, listed, keeps_all=not endpoint.models_are_guessed)
        provider.models = merged or endpoint.models

    async def _find_nearby(self) -> None:
        models = await asyncio.gather(*(list_local_models(endpoint) for endpoint in self.nearby))
        before = {provider.name: provider for provider in self.found}
        found = []
        for endpoint, offered in zip(self.nearby, models, strict=True):
            if offered:
                provider = before.get(endpoint.name) or HttpProvider(endpoint)
                provider.models = offered
                found.append(provider)
        self.found = tuple(found)


async def list_models(endpoint: Endpoint) -> tuple[Model, ...]:
    api = DIALECTS[endpoint.dialect].HTTP_API
    listed = api.read_models(await fetch(endpoint, endpoint.base_url + api.models_path))
    return tuple(
        Model(name=model.name, label=model.label, window=model.window, takes_images=model.takes_images)
        for model in listed
        if 0 < len(model.name) <= LONGEST_MODEL and is_offered_for_chat(model.name, endpoint.base_url)
    )


async def probe_dialects(endpoint: Endpoint) -> tuple[str, ...] | None:
    """Further dialects of the server, whose paths complain about an empty request; None if that is not clear."""
    spoken = []
    for dialect, path in DIALECTS[endpoint.dialect].HTTP_API.probe_paths.items():
        try:
            await fetch(endpoint, endpoint.base_url + path, body={})
        except ProviderError as error:
            if error.status in NOT_THERE:
                continue
            if error.status not in COMPLAINTS:
                return None
        spoken.append(dialect)
    return tuple(spoken)


def merge_models(known: Iterable[Model], listed: Iterable[Model], *, keeps_all: bool) -> tuple[Model, ...]:
    """Known models first, then the rest. `keeps_all` includes known ones that are not listed."""
    there = {model.name: model for model in listed}
    first = []
    for model in known:
        on_list = there.pop(model.name, None)
        if on_list is not None:
            first.append(replace(model, label=model.label or on_list.label, window=on_list.window or model.window))
        elif keeps_all:
            first.append(model)
    return (*first, *there.values())
