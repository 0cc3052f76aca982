"""Routes from model names to upstreams, in the order of attempts.

The rules of PARLEY_PROVIDERS come first: a name or the beginning of one, and one or several places to go, by weight.
A session stays where it is, because that is where its prompt is cached: the place is picked by a weighted hash of
the session and not by chance, so every process picks the same. One that has just failed is passed over for a while,
unless there is no other. Without a rule the router of the providers knows whose the model is.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from relay.errors import NoSuchModel
from relay.providers import registry
from relay.providers.base import Route
from relay.providers.http import HttpProvider
from relay.providers.rules import Target
from relay.providers.vendors import VENDOR_OF_NAME

# No vendor's names are half as long; what is found out about one is remembered for a while, whoever made it up.
LONGEST_NAME = 500
COOL_SECONDS = 15.0
MOST_COOL_SECONDS = 300.0
MOST_COOLING = 1_000

# Until when a model is not asked for at a provider, and whether the provider itself has said so.
_cooling: dict[tuple[str, str], tuple[float, bool]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A provider, and what the model is called there. `dialect` is the language that the call will be made in."""

    provider: HttpProvider
    model: str
    dialect: str
    weight: float = 1.0

    def is_native(self, dialect: str) -> bool:
        """Whether the caller's own bytes can go there."""
        return self.dialect == dialect and not self.provider.is_demo


def upstreams_for(model: str, *, dialect: str, sticky: Callable[[], bytes] = bytes) -> list[Upstream]:
    """Those that may be asked, best first. Raises NoSuchModel. `sticky` is asked only where there is a choice."""
    if len(model) > LONGEST_NAME:
        raise NoSuchModel(model)
    rule = next((rule for rule in settings.PARLEY_ROUTES if rule.matches(model)), None)
    if rule is None:
        return [_found(registry.router(), model, dialect, int(time.monotonic()))]
    found = [upstream for target in rule.targets if (upstream := _target(target, model, dialect=dialect))]
    if not found:
        raise NoSuchModel(model)
    return _ordered(found, sticky()) if len(found) > 1 else found


def passing(dialect: str, *, model: str = "", sticky: Callable[[], bytes] = bytes) -> list[Upstream]:
    """Who takes a call that is only passed on: whoever has the model, else one who may have it, a vendor first.

    The lists of models are of those that chat: none of them names what makes embeddings, pictures and sounds.
    """
    try:
        found = upstreams_for(model, dialect=dialect, sticky=sticky) if model else []
    except NoSuchModel:
        if _is_led_elsewhere(model):
            raise
        found = []
    if found:
        return [upstream for upstream in found if upstream.is_native(dialect)]
    takers = [provider for provider in _takers(dialect) if provider.is_open or not model]
    takers.sort(key=lambda provider: provider.name not in VENDOR_OF_NAME)
    return [Upstream(provider=provider, model=model, dialect=dialect) for provider in takers[:1]]


def _takers(dialect: str) -> Iterator[HttpProvider]:
    router = registry.router()
    for provider in (*router.configured, *router.catalogue.found):
        if isinstance(provider, HttpProvider) and provider.endpoint.speaks(dialect) and not provider.is_demo:
            yield provider


def _is_led_elsewhere(model: str) -> bool:
    """By a rule, or by the name of a provider before it: then nobody else is meant. Nor is by what is no name."""
    first, _, rest = model.partition("/")
    is_ruled = any(rule.matches(model) for rule in settings.PARLEY_ROUTES)
    return is_ruled or len(model) > LONGEST_NAME or bool(rest and registry.router().provider(first))


def listed_by(method: str, path: str) -> HttpProvider | None:
    """The provider whose operator lists this path."""
    for provider in registry.router().configured:
        if isinstance(provider, HttpProvider) and provider.endpoint.passes(method, path):
            return provider
    return None


def cool(upstream: Upstream, *, seconds: float | None) -> None:
    """It failed: leave it alone for as long as it says, or for a little while. Other models there are not meant."""
    wait = COOL_SECONDS if seconds is None else min(seconds, MOST_COOL_SECONDS)
    if len(_cooling) >= MOST_COOLING:
        _forget_the_past()
    _cooling[upstream.provider.name, upstream.model] = (time.monotonic() + wait, seconds is not None)


def warm(upstream: Upstream) -> None:
    """It has answered; but what it asked for itself holds."""
    if _cooling:
        until, is_its_word = _cooling.get((upstream.provider.name, upstream.model), (0.0, True))
        if not is_its_word or until <= time.monotonic():
            _cooling.pop((upstream.provider.name, upstream.model), None)


def _forget_the_past() -> None:
    """Names of models are the callers' to invent."""
    now = time.monotonic()
    for name in [name for name, (until, _) in _cooling.items() if until <= now] or list(_cooling):
        del _cooling[name]


def forget_all() -> None:
    _cooling.clear()


@lru_cache(maxsize=1_000)
def _found(router: registry.Router, model: str, dialect: str, second: int) -> Upstream:
    """Of several that have a model of this name, one that speaks the caller's language. Known for a second."""
    route = router.route(model)
    if not _speaks(route, dialect):
        route = next((other for other in router.named_alike(model) if _speaks(other, dialect)), route)
    if not isinstance(route.provider, HttpProvider):
        raise NoSuchModel(model)
    return _upstream(route.provider, route.model.name, dialect=dialect)


def _speaks(route: Route, dialect: str) -> bool:
    return isinstance(route.provider, HttpProvider) and route.provider.endpoint.speaks(dialect)


def _target(target: Target, model: str, *, dialect: str) -> Upstream | None:
    """None where the provider has no key, or is not there."""
    provider = registry.router().provider(target.provider)
    if not isinstance(provider, HttpProvider):
        return None
    return _upstream(provider, target.model or model, dialect=dialect, weight=target.weight)


def _upstream(provider: HttpProvider, model: str, *, dialect: str, weight: float = 1.0) -> Upstream:
    spoken = dialect if provider.endpoint.speaks(dialect) else provider.dialect
    return Upstream(provider=provider, model=model, dialect=spoken, weight=weight)


def _ordered(upstreams: Sequence[Upstream], sticky: bytes) -> list[Upstream]:
    now = time.monotonic()
    best = sorted(upstreams, key=lambda upstream: _score(upstream, sticky), reverse=True)
    return sorted(best, key=lambda upstream: max(0.0, _until(upstream) - now))


def _until(upstream: Upstream) -> float:
    return _cooling.get((upstream.provider.name, upstream.model), (0.0, False))[0]


def _score(upstream: Upstream, sticky: bytes) -> float:
    """Rendezvous hashing: each place draws a number for this session, the heavier the likelier a high one."""
    name = f"{upstream.provider.name}\0{upstream.model}\0".encode()
    drawn = int.from_bytes(hashlib.blake2b(name + sticky, digest_size=8).digest(), "big") + 1
    return -upstream.weight / math.log(drawn / (2**64 + 1)) if upstream.weight else 0.0
