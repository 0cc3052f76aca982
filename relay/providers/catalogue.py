"""Catalogue of available models, refreshed in the background.

Readers get what was known last. A provider whose list cannot be had keeps the models that it had, and the reason
is kept for the staff's page. Servers on this machine that answer at their usual port appear, and go again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from relay.errors import ProviderError, detached
from relay.providers import sessions
from relay.providers.endpoints import Endpoint, host_of
from relay.providers.http import HttpProvider
from relay.providers.listing import list_models, merge_models, probe_dialects
from relay.providers.vendors.local_servers import list_local_models

FRESH_SECONDS = 300.0


class Catalogue:
    """`providers` are asked for their lists, `nearby` are places where a server may or may not be."""

    def __init__(self, providers: Sequence[HttpProvider], *, nearby: Sequence[Endpoint] = ()) -> None:
        self.asked = [provider for provider in providers if provider.endpoint.lists_models]
        known = {provider.name for provider in providers} | {host_of(p.endpoint.base_url) for p in providers}
        self.nearby = [place for place in nearby if not {place.name, host_of(place.base_url)} & known]
        self.found: tuple[HttpProvider, ...] = ()
        self.errors: dict[str, ProviderError] = {}
        self._asked_at: float | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def refresh_if_stale(self) -> None:
        """Cheap, and it returns at once: the asking is done by a thread."""
        if not self._is_stale():
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self.refresh, name="list models", daemon=True)
                self._thread.start()

    def refresh(self) -> None:
        """Ask them all, each for a few seconds at most."""
        self._asked_at = time.monotonic()
        if self.asked or self.nearby:
            asyncio.run(self._refresh())

    def _is_stale(self) -> bool:
        return self._asked_at is None or time.monotonic() - self._asked_at > FRESH_SECONDS

    async def _refresh(self) -> None:
        try:
            await asyncio.gather(self._look_nearby(), *(self._ask(provider) for provider in self.asked))
        finally:
            await sessions.close()

    async def _ask(self, provider: HttpProvider) -> None:
        endpoint = provider.endpoint
        if endpoint.probes_dialects and (spoken := await _probed(endpoint)) is not None:
            provider.endpoint = endpoint = replace(endpoint, also_speaks=spoken)
        try:
            listed = await list_models(endpoint)
        except ProviderError as error:
            self.errors[provider.name] = detached(error)
            return
        self.errors.pop(provider.name, None)
        provider.models = (
            merge_models(endpoint.models, listed, keeps_all=not endpoint.models_are_guessed) or endpoint.models
        )

    async def _look_nearby(self) -> None:
        models = await asyncio.gather(*(list_local_models(place) for place in self.nearby))
        before = {provider.name: provider for provider in self.found}
        found = []
        for place, offered in zip(self.nearby, models, strict=True):
            if offered:
                provider = before.get(place.name) or HttpProvider(place)
                provider.models = offered
                found.append(provider)
        self.found = tuple(found)


async def _probed(endpoint: Endpoint) -> tuple[str, ...] | None:
    try:
        return await probe_dialects(endpoint)
    except ProviderError:
        return None
