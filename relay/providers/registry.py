"""Router from model names (`provider/model`, a bare name, or none for the default) to providers.

Who offers what is read from the settings once; what is really there is kept up to date by the catalogue.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.conf import settings

from history.db.process_state import process_state
from history.dialects import DIALECTS
from relay.errors import NoSuchModel, ProviderError
from relay.providers import sessions
from relay.providers.base import Model
from relay.providers.catalogue import Catalogue
from relay.providers.endpoints import Endpoint
from relay.providers.http import HttpProvider, Route
from relay.providers.local import SERVER, LocalProvider, missing_packages
from relay.providers.vendors import FAMILIES, VENDORS, Vendor, default_dialect, default_switches, other_dialects
from relay.providers.vendors.local_servers import LOCAL_SERVERS


class Group(NamedTuple):
    """What one provider offers, for a picker: `route.name` is the value, `route.model.shown` the text."""

    provider: HttpProvider
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    """The state of one provider, for staff."""

    provider: HttpProvider
    is_found: bool
    list_error: ProviderError | None

    @property
    def missing(self) -> list[str]:
        """The packages that it needs."""
        return missing_packages() if isinstance(self.provider, LocalProvider) else []

    @property
    def also_speaks(self) -> tuple[str, ...]:
        endpoint = self.provider.endpoint
        return endpoint.also_speaks if endpoint.is_configured else ()

    @property
    def translates_responses(self) -> bool:
        """Whether clients are translated whose dialect many servers of this kind accept, but not this one."""
        spoken = DIALECTS[self.provider.dialect].HTTP_API.probe_paths.keys()
        return not self.provider.is_demo and not spoken <= set(self.also_speaks)


class Router:
    """`providers` in the order in which they are preferred; those without the key that they need are only shown."""

    def __init__(self, providers: Sequence[HttpProvider], *, nearby: Sequence[Endpoint] = ()) -> None:
        self.configured = [provider for provider in providers if provider.endpoint.is_configured]
        self.unconfigured = [provider for provider in providers if not provider.endpoint.is_configured]
        dialled = [provider for provider in self.configured if not provider.is_demo]
        self.catalogue = Catalogue(dialled, nearby=nearby)

    def route(self, name: str = "") -> Route:
        """The route of a model name. Raises NoSuchModel."""
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
            for one in (*self._all_providers(), *self.unconfigured)
        ]

    def provider(self, name: str) -> HttpProvider | None:
        return next((provider for provider in self._all_providers() if provider.name == name), None)

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
        families = (self._named(f"{vendor}/{name}") for start, vendor in FAMILIES.items() if name.startswith(start))
        return next(families, None)


def _listed(provider: HttpProvider, name: str) -> Route | None:
    return next((Route(provider, model) for model in provider.models if model.name == name), None)


def router_from_settings() -> Router:
    written: tuple[Endpoint, ...] = settings.PARLEY_PROVIDERS
    named = {endpoint.name for endpoint in written}
    # The order of the file counts.
    endpoints = [*written, *(_from_variables(vendor) for vendor in VENDORS if vendor.name not in named)]
    providers = [HttpProvider(endpoint) for endpoint in endpoints]
    if settings.PARLEY_DEMO_MODEL:
        providers.append(LocalProvider())
    return Router(providers, nearby=LOCAL_SERVERS if settings.PARLEY_FIND_LOCAL_MODELS else ())


def _from_variables(vendor: Vendor) -> Endpoint:
    given: str = getattr(settings, vendor.url_variable)
    base_url = given or vendor.base_url
    dialect = default_dialect(vendor, base_url)
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
        switches=default_switches(dialect, base_url),
        also_speaks=other_dialects(dialect, base_url),
        probes_dialects=bool(given) and bool(DIALECTS[dialect].HTTP_API.probe_paths),
    )


def router() -> Router:
    return process_state.get(Router, router_from_settings)


def refresh() -> None:
    """Fetch the lists of models, so that the first picker has them: a background job."""
    router().catalogue.refresh()


async def close_all() -> None:
    """At the end of this process or loop: end all calls and the demo model's server."""
    await sessions.close()
    await asyncio.to_thread(SERVER.end)
