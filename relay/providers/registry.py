"""Router from model names (`provider/model`, a bare name, or none for the default) to providers, and their models.

Who offers what is read from the settings once; what is really there is kept up to date by the catalogue, in the
background. Readers get the latest known state. A provider whose list cannot be fetched keeps its models, and the error
is shown to staff. Local servers appear while they answer at their usual port.
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.conf import settings

from history.db.process_state import process_state
from history.dialects import DIALECTS
from relay.errors import NoSuchModel, ProviderError, detached
from relay.providers import connections, vendors
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, host_of
from relay.providers.http import HttpProvider, Route, fetch
from relay.providers.local import SERVER, LocalProvider, missing_packages
from relay.providers.toml_config import LONGEST_MODEL
from relay.providers.vendors import Vendor
from relay.providers.vendors.local_servers import LOCAL_SERVERS, list_local_models

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
            await connections.close()

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
        if 0 < len(model.name) <= LONGEST_MODEL and vendors.is_offered_for_chat(model.name, endpoint.base_url)
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


class Group(NamedTuple):
    """What one provider offers, for a picker: `route.name` is the value, `route.model.shown` the text."""

    provider: HttpProvider
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    provider: HttpProvider
    is_found: bool
    list_error: ProviderError | None

    @property
    def missing(self) -> list[str]:
        return missing_packages() if isinstance(self.provider, LocalProvider) else []

    @property
    def also_speaks(self) -> tuple[str, ...]:
        endpoint = self.provider.endpoint
        return endpoint.also_speaks if endpoint.is_configured else ()

    @property
    def translates_responses(self) -> bool:
        """Whether clients are translated whose dialect many servers of this kind accept, but not this one."""
        spoken = DIALECTS[self.provider.dialect].HTTP_API.probe_paths.keys()
        is_plan = self.provider.endpoint.takes_login
        return not self.provider.is_demo and not is_plan and not spoken <= set(self.also_speaks)


class Router:
    """`providers` in the order in which they are preferred; those without the key that they need are only shown.

    `of_plans` are called with the login of a caller. They are apart, because chats and calls without a login never
    go there.
    """

    def __init__(self, providers: Sequence[HttpProvider], *, nearby: Sequence[Endpoint] = ()) -> None:
        self.of_plans = [provider for provider in providers if provider.endpoint.takes_login]
        providers = [provider for provider in providers if not provider.endpoint.takes_login]
        self.configured = [provider for provider in providers if provider.endpoint.is_configured]
        self.unconfigured = [provider for provider in providers if not provider.endpoint.is_configured]
        dialled = [provider for provider in self.configured if not provider.is_demo]
        self.catalogue = Catalogue(dialled, nearby=nearby)

    def route(self, name: str = "") -> Route:
        """Raises NoSuchModel."""
        self.catalogue.refresh_if_stale()
        if name:
            # Names of models may have slashes of their own.
            found = self._named(name) or next(self.named_alike(name), None) or self._of_family(name)
        else:
            found = next((Route(one, one.models[0]) for one in self._all_providers() if one.models), None)
        if found is None:
            raise NoSuchModel(name)
        return found

    def choices(self) -> list[Group]:
        self.catalogue.refresh_if_stale()
        return [
            Group(provider, tuple(Route(provider, model) for model in provider.models))
            for provider in self._all_providers()
            if provider.models
        ]

    def providers(self) -> list[ProviderStatus]:
        self.catalogue.refresh_if_stale()
        found, errors = self.catalogue.found, self.catalogue.errors
        return [
            ProviderStatus(provider=one, is_found=one in found, list_error=errors.get(one.name))
            for one in (*self._all_providers(), *self.of_plans, *self.unconfigured)
        ]

    def provider(self, name: str) -> HttpProvider | None:
        return next((provider for provider in self._all_providers() if provider.name == name), None)

    def plan(self, name: str) -> HttpProvider | None:
        """By its name, a provider that takes logins."""
        return next((provider for provider in self.of_plans if provider.name == name), None)

    def _all_providers(self) -> Iterator[HttpProvider]:
        """Configured ones, then the demo model, then local servers."""
        yield from (provider for provider in self.configured if not provider.is_demo)
        yield from (provider for provider in self.configured if provider.is_demo)
        yield from self.catalogue.found

    def _named(self, name: str) -> Route | None:
        first, _, rest = name.partition("/")
        provider = self.provider(first) if rest else None
        if provider is None:
            return None
        # A provider that may have more models than its list is tried with any name.
        return _listed(provider, rest) or (Route(provider, Model(name=rest)) if provider.is_open else None)

    def named_alike(self, name: str) -> Iterator[Route]:
        """Routes of all providers that list a model of exactly this name."""
        offers = (_listed(provider, name) for provider in self._all_providers())
        yield from (route for route in offers if route)

    def _of_family(self, name: str) -> Route | None:
        """For models that are newer than any list."""
        families = (
            self._named(f"{vendor}/{name}") for start, vendor in vendors.FAMILIES.items() if name.startswith(start)
        )
        return next(families, None)


def _listed(provider: HttpProvider, name: str) -> Route | None:
    return next((Route(provider, model) for model in provider.models if model.name == name), None)


def router_from_settings() -> Router:
    written: tuple[Endpoint, ...] = settings.PARLEY_PROVIDERS
    named = {endpoint.name for endpoint in written}
    # The order of the file counts.
    endpoints = [*written, *(_from_variables(vendor) for vendor in vendors.VENDORS if vendor.name not in named)]
    providers = [HttpProvider(endpoint) for endpoint in endpoints]
    if settings.PARLEY_DEMO_MODEL:
        providers.append(LocalProvider())
    return Router(providers, nearby=LOCAL_SERVERS if settings.PARLEY_FIND_LOCAL_MODELS else ())


def _from_variables(vendor: Vendor) -> Endpoint:
    given: str = getattr(settings, vendor.url_variable)
    base_url = given or vendor.base_url
    dialect = vendors.default_dialect(vendor, base_url)
    return Endpoint(
        name=vendor.name,
        label=vendor.label,
        dialect=dialect,
        base_url=base_url,
        api_key=getattr(settings, vendor.key_variable),
        key_variable=vendor.key_variable,
        # A self-hosted server may need none.
        needs_key=not given,
        key_header=DIALECTS[dialect].HTTP_API.key_header,
        models=vendor.models if base_url == vendor.base_url else (),
        models_are_guessed=True,
        switches=vendors.default_switches(dialect, base_url),
        also_speaks=vendors.other_dialects(dialect, base_url),
        probes_dialects=bool(given) and bool(DIALECTS[dialect].HTTP_API.probe_paths),
    )


def router() -> Router:
    return process_state.find(Router) or process_state.keep(router_from_settings())


def refresh() -> None:
    """Fetch the lists of models, so that the first picker has them: a background job."""
    router().catalogue.refresh()


async def close_all() -> None:
    """At the end of this process or loop: end all calls and the demo model's server."""
    await connections.close()
    await asyncio.to_thread(SERVER.end)
