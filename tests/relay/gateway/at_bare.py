"""Providers that lie at an upstream which is nothing but a socket."""

from __future__ import annotations

from typing import Any

from relay.providers import registry
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, Patience
from relay.providers.http import HttpProvider
from tests.relay.gateway.bare import Bare

UPSTREAM_KEY = "sk-upstream-0123456789"


def endpoint_at(upstream: Bare, **changes: Any) -> Endpoint:
    fields: dict[str, Any] = {
        "name": "bare",
        "dialect": "anthropic-messages",
        "base_url": upstream.url,
        "api_key": UPSTREAM_KEY,
        "key_header": "x-api-key",
        "models": (Model(name="model"),),
        "lists_models": False,
        "patience": Patience(connect=2, idle=5),
    }
    return Endpoint(**{**fields, **changes})


def speaking(upstream: Bare, dialect: str, **changes: Any) -> registry.Router:
    """The one provider there is from now on."""
    router = registry.Router([HttpProvider(endpoint_at(upstream, dialect=dialect, **changes))])
    registry.use(router)
    return router
