"""Endpoints that lead to the played vendors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from history.db.process_state import process_state
from history.dialects import DIALECTS
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.endpoints import Endpoint, Timeouts
from relay.providers.http import HttpProvider
from tests.vendors.server import KEYS, VENDOR_OF_DIALECT, Vendors

# As fast as a test wants it.
HASTE = Timeouts(connect=2, idle=5, attempts=3, retry_within=10)
NAMES = {"openai-responses": "openai", "anthropic-messages": "anthropic", "gemini-generate": "gemini"}


def endpoint_at(vendors: Vendors, dialect: str, **changes: Any) -> Endpoint:
    start = Endpoint(
        name=NAMES.get(dialect, dialect),
        dialect=dialect,
        base_url=vendors.base_url(dialect),
        api_key=KEYS[VENDOR_OF_DIALECT[dialect]],
        key_header=DIALECTS[dialect].HTTP_API.key_header,
        models=(Model(name="model", window=8192),),
        lists_models=False,
        timeouts=HASTE,
    )
    return replace(start, **changes)


def use_one_provider(vendors: Vendors, dialect: str) -> registry.Router:
    """Configure the played vendor of this dialect as the only provider."""
    router = registry.Router([HttpProvider(endpoint_at(vendors, dialect))])
    process_state.set(router)
    return router
