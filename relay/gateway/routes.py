"""Routes from model names to upstreams, in the order of attempts.

The rules of PARLEY_PROVIDERS come first: a model name or its beginning, and targets with weights. A session stays at
one target, because its prompt is cached there: a weighted hash of the session picks the same one in every process. One
that has just failed is skipped for a while, unless there is no other.
"""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from history.db.process_state import process_state
from history.models.exchanges import PLAN as PLAN
from relay.errors import NoSuchModel
from relay.gateway.call import bodies, errors
from relay.gateway.call.calls import Call
from relay.gateway.call.errors import Refusal
from relay.gateway.call.json_scanner import model_in_form
from relay.providers import registry
from relay.providers.http import HttpProvider
from relay.providers.vendors import VENDOR_OF_NAME

# Vendors' names are shorter than half of it. Routes of names that callers invent are cached for a while.
LONGEST_NAME = 500
COOL_SECONDS = 15.0
MOST_COOL_SECONDS = 300.0
MOST_COOLING = 1_000
LOGIN_MISSING = (
    "This model is available with your own subscription only. Send Parley's key in X-Parley-Key, and leave "
    "Authorization to the login of your client."
)


class Cooldowns(dict[tuple[str, str], tuple[float, bool]]):
    """The time until which a model is not called at a provider, and whether the provider requested it."""


def _cooldowns() -> Cooldowns:
    return process_state.get(Cooldowns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A provider, the model's name there, and the dialect of the call."""

    provider: HttpProvider
    model: str
    dialect: str
    weight: float = 1.0

    def is_native(self, dialect: str) -> bool:
        """Whether the caller's bytes can be forwarded unchanged."""
        return self.dialect == dialect and not self.provider.is_demo

    @property
    def is_plan(self) -> bool:
        """Whether the caller's own subscription pays."""
        return self.provider.endpoint.takes_login

    @property
    def billing(self) -> str:
        return PLAN if self.is_plan else ""


def upstreams_for(
    model: str, *, dialect: str, affinity: Callable[[], bytes] = bytes, has_login: bool = False
) -> list[Upstream]:
    """Best first. Raises NoSuchModel. `affinity` is called only if there is a choice."""
    if len(model) > LONGEST_NAME:
        raise NoSuchModel(model)
    router = registry.router()
    plans = [provider for provider in router.of_plans if has_login and provider.endpoint.speaks(dialect)]
    rule = next((rule for rule in settings.PARLEY_ROUTES if rule.matches(model)), None)
    if rule is None:
        plan = _plan_route(router, plans, model, dialect) if plans else None
        return [plan or _route(router, model, dialect, int(time.monotonic()))]
    # Targets whose provider has no key or does not exist are left out. So are plans that this call cannot use.
    named = {provider.name: provider for provider in plans}
    providers = [(router.provider(target.provider) or named.get(target.provider), target) for target in rule.targets]
    found = [
        _upstream(provider, target.model or model, dialect=dialect, weight=target.weight)
        for provider, target in providers
        if provider is not None
    ]
    if not found:
        raise NoSuchModel(model)
    return _ordered(found, affinity()) if len(found) > 1 else found


def _plan_route(router: registry.Router, plans: Sequence[HttpProvider], model: str, dialect: str) -> Upstream | None:
    """The plan that the name begins with, else the first that takes it. Never another dialect than the caller's."""
    first, _, rest = model.partition("/")
    if rest and (named := router.plan(first)):
        return Upstream(provider=named, model=rest, dialect=dialect) if named in plans else None
    if rest and router.provider(first):
        return None
    takers = (one for one in plans if one.is_open or any(known.name == model for known in one.models))
    plan = next(takers, None)
    return Upstream(provider=plan, model=model, dialect=dialect) if plan else None


def find_plan(dialect: str) -> HttpProvider | None:
    """The first provider of this dialect that is called with the login of a caller."""
    return next((one for one in registry.router().of_plans if one.endpoint.speaks(dialect)), None)


def passthrough_upstreams(dialect: str, *, model: str = "", affinity: Callable[[], bytes] = bytes) -> list[Upstream]:
    """For a call that is only passed on: providers with the model, else one that may have it, a vendor first.

    The lists of models are of those that chat: they do not name models for embeddings, images and audio.
    """
    try:
        found = upstreams_for(model, dialect=dialect, affinity=affinity) if model else []
    except NoSuchModel:
        if _is_assigned(model):
            raise
        found = []
    if found:
        return [upstream for upstream in found if upstream.is_native(dialect)]
    router = registry.router()
    candidates = [
        provider
        for provider in (*router.configured, *router.catalogue.found)
        if provider.endpoint.speaks(dialect) and not provider.is_demo
        if provider.is_open or not model
    ]
    candidates.sort(key=lambda provider: provider.name not in VENDOR_OF_NAME)
    return [Upstream(provider=provider, model=model, dialect=dialect) for provider in candidates[:1]]


def _is_assigned(model: str) -> bool:
    """By a rule or the prefix of a provider: then no other provider is meant, nor is one by an invalid name."""
    first, _, rest = model.partition("/")
    is_ruled = any(rule.matches(model) for rule in settings.PARLEY_ROUTES)
    return is_ruled or len(model) > LONGEST_NAME or bool(rest and registry.router().provider(first))


def find_listed_provider(method: str, path: str) -> HttpProvider | None:
    return next((one for one in registry.router().configured if one.endpoint.passes(method, path)), None)


def start_cooldown(upstream: Upstream, *, seconds: float | None) -> None:
    """After a failure of this model: for as long as the provider asked, or a little while."""
    wait = COOL_SECONDS if seconds is None else min(seconds, MOST_COOL_SECONDS)
    cooldowns = _cooldowns()
    if len(cooldowns) >= MOST_COOLING:
        # Callers can invent model names without end: if none has expired, drop all.
        now = time.monotonic()
        for name in [name for name, (until, _) in cooldowns.items() if until <= now] or list(cooldowns):
            del cooldowns[name]
    cooldowns[upstream.provider.name, upstream.model] = (time.monotonic() + wait, seconds is not None)


def end_cooldown(upstream: Upstream) -> None:
    """After an answer. A time that the provider itself asked for stays."""
    cooldowns, name = _cooldowns(), (upstream.provider.name, upstream.model)
    until, is_requested = cooldowns.get(name, (0.0, False))
    if not is_requested or until <= time.monotonic():
        cooldowns.pop(name, None)


@lru_cache(maxsize=1_000)
def _route(router: registry.Router, model: str, dialect: str, second: int) -> Upstream:
    """Of several providers with this model, one that speaks the caller's dialect. Cached for a second."""
    route = router.route(model)
    if not route.provider.endpoint.speaks(dialect):
        alike = (other for other in router.named_alike(model) if other.provider.endpoint.speaks(dialect))
        route = next(alike, route)
    return _upstream(route.provider, route.model.name, dialect=dialect)


def _upstream(provider: HttpProvider, model: str, *, dialect: str, weight: float = 1.0) -> Upstream:
    spoken = dialect if provider.endpoint.speaks(dialect) else provider.dialect
    return Upstream(provider=provider, model=model, dialect=spoken, weight=weight)


def _ordered(upstreams: Sequence[Upstream], affinity: bytes) -> list[Upstream]:
    now, cooldowns = time.monotonic(), _cooldowns()
    best = sorted(upstreams, key=lambda upstream: _score(upstream, affinity), reverse=True)
    return sorted(best, key=lambda one: max(now, cooldowns.get((one.provider.name, one.model), (0.0, False))[0]))


def _score(upstream: Upstream, affinity: bytes) -> float:
    """Rendezvous hashing: each target gets a number for this session, higher ones more often with more weight."""
    name = f"{upstream.provider.name}\0{upstream.model}\0".encode()
    number = int.from_bytes(hashlib.blake2b(name + affinity, digest_size=8).digest(), "big") + 1
    return -upstream.weight / math.log(number / (2**64 + 1)) if upstream.weight else 0.0


def find_upstreams(call: Call) -> list[Upstream]:
    """The upstreams of a call, in the order of attempts. Raises Refusal where there is none."""
    try:
        if call.address.kind == "other":
            return _passthrough_upstreams(call)
        if not call.model:
            raise Refusal(bodies.explain_missing_model(call.body))
        has_login = call.login is not None
        return upstreams_for(call.model, dialect=call.address.dialect, affinity=call.affinity, has_login=has_login)
    except NoSuchModel as error:
        if call.login is None and _has_plan_for(error.model, call.address.dialect):
            raise Refusal(LOGIN_MISSING, "permission") from None
        raise errors.model_not_found(error.model) from None


def _has_plan_for(model: str, dialect: str) -> bool:
    """Whether a login would lead somewhere."""
    try:
        return any(one.is_plan for one in upstreams_for(model, dialect=dialect, has_login=True))
    except NoSuchModel:
        return False


def _passthrough_upstreams(call: Call) -> list[Upstream]:
    dialect = call.address.dialect
    if call.is_model_list and (plan := find_plan(dialect)):
        return [Upstream(provider=plan, model="", dialect=dialect)]
    if provider := find_listed_provider(call.method, call.path):
        return [Upstream(provider=provider, model="", dialect=dialect)]
    call.set_fields({"model": bodies.peek_model(call.body) or model_in_form(call.body)})
    # It belongs to no conversation, so it need not stay at one upstream.
    found = passthrough_upstreams(dialect, model=call.model, affinity=lambda: call.exchange.bytes)
    if not found:
        raise errors.not_found(f"No provider supports {call.path}.", dialect)
    return found
