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
from relay.providers.base import Model, Provider, Route
from relay.providers.catalogue import Catalogue
from relay.providers.endpoints import Endpoint
from relay.providers.http import HttpProvider, Trouble
from relay.providers.local import SERVER, LocalProvider, missing_packages
from relay.providers.vendors import FAMILIES, VENDORS, Vendor, default_dialect, default_switches, other_dialects
from relay.providers.vendors.local_servers import LOCAL_SERVERS


class Group(NamedTuple):
    """What one provider offers, for a picker: `route.name` is the value, `route.model.shown` the text."""

    provider: Provider
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    """The state of one provider, for staff; `missing` are packages that it needs."""

    name: str
    label: str
    dialect: str
    is_configured: bool
    is_demo: bool
    is_found: bool
    base_url: str
    key_variable: str
    models: tuple[Model, ...]
    trouble: Trouble | None
    list_error: ProviderError | None
    missing: tuple[str, ...]
    also_speaks: tuple[str, ...]

    @property
    def translates_responses(self) -> bool:
        """Whether clients are translated whose dialect many servers of this kind accept, but not this one."""
        return not self.is_demo and not set(DIALECTS[self.dialect].HTTP_API.probe_paths) <= set(self.also_speaks)


class Router:
    """`providers` in the order in which they are preferred; `unconfigured` ones are only shown."""

    def __init__(
        self, providers: Sequence[Provider], *, unconfigured: Sequence[Endpoint] = (), nearby: Sequence[Endpoint] = ()
    ) -> None:
        self.configured = tuple(providers)
        self.unconfigured = tuple(unconfigured)
        dialled = [provider for provider in providers if isinstance(provider, HttpProvider) and not provider.is_demo]
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
        statuses = [self._status(provider) for provider in self._all_providers()]
        return statuses + [self._status(HttpProvider(one), is_configured=False) for one in self.unconfigured]

    def provider(self, name: str) -> Provider | None:
        return next((provider for provider in self._all_providers() if provider.name == name), None)

    def _all_providers(self) -> Iterator[Provider]:
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
        is_open = isinstance(provider, HttpProvider) and provider.is_open
        return _listed(provider, rest) or (Route(provider, Model(name=rest)) if is_open else None)

    def named_alike(self, name: str) -> Iterator[Route]:
        """Routes of all providers that list a model of exactly this name."""
        offers = (_listed(provider, name) for provider in self._all_providers())
        yield from (route for route in offers if route)

    def _of_family(self, name: str) -> Route | None:
        """For models that are newer than any list."""
        families = (self._named(f"{vendor}/{name}") for start, vendor in FAMILIES.items() if name.startswith(start))
        return next(families, None)

    def _status(self, provider: Provider, *, is_configured: bool = True) -> ProviderStatus:
        endpoint = provider.endpoint if isinstance(provider, HttpProvider) else None
        return ProviderStatus(
            name=provider.name,
            label=provider.label,
            dialect=provider.dialect,
            is_configured=is_configured,
            is_demo=provider.is_demo,
            is_found=provider in self.catalogue.found,
            base_url=endpoint.base_url if endpoint else "",
            key_variable=endpoint.key_variable if endpoint else "",
            models=provider.models if is_configured else (),
            trouble=provider.trouble if isinstance(provider, HttpProvider) else None,
            list_error=self.catalogue.errors.get(provider.name),
            missing=tuple(missing_packages()) if isinstance(provider, LocalProvider) else (),
            also_speaks=endpoint.also_speaks if endpoint and is_configured else (),
        )


def _listed(provider: Provider, name: str) -> Route | None:
    return next((Route(provider, model) for model in provider.models if model.name == name), None)


def router_from_settings() -> Router:
    written: tuple[Endpoint, ...] = settings.PARLEY_PROVIDERS
    named = {endpoint.name for endpoint in written}
    # The order of the file counts.
    endpoints = [*written, *(_from_variables(vendor) for vendor in VENDORS if vendor.name not in named)]
    providers: list[Provider] = [HttpProvider(endpoint) for endpoint in endpoints if endpoint.is_configured]
    if settings.PARLEY_DEMO_MODEL:
        providers.append(LocalProvider())
    return Router(
        providers,
        unconfigured=[endpoint for endpoint in endpoints if not endpoint.is_configured],
        nearby=LOCAL_SERVERS if settings.PARLEY_FIND_LOCAL_MODELS else (),
    )


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
