"""Endpoints that the gateway answers itself: the list of models and `/v1/me`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from history.dialects import DIALECTS
from history.dialects.http_api import ListedModel
from history.dialects.json_access import as_bytes
from history.models import ApiKey
from relay.gateway.call.addresses import guess_dialect
from relay.gateway.call.client import Client
from relay.gateway.call.errors import model_not_found
from relay.gateway.call.response_headers import json_headers
from relay.gateway.limits import budgets, usage_counters, usage_store
from relay.gateway.limits.usage_store import Total
from relay.gateway.recording import mode_of
from relay.providers import registry
from relay.providers.base import Route
from relay.runtime.async_db import in_database
from relay.usage.amounts import Use

ME = "/v1/me"
LISTS = ("/v1/models", "/v1beta/models")


async def answer_get(path: str, headers: Mapping[str, str], key: ApiKey, client: Client, exchange: UUID) -> bool:
    """What is asked for with GET. False: that is not one of ours."""
    if path == ME:
        told = await _standing(key)
    elif path in LISTS:
        told = _listed(guess_dialect(path, headers))
    elif path.startswith(tuple(f"{start}/" for start in LISTS)):
        told = _one(path, guess_dialect(path, headers))
    else:
        return False
    body = as_bytes(told)
    await client.begin(200, [*json_headers(body), (b"x-parley-exchange-id", str(exchange).encode())])
    await client.write(body, is_last=True)
    return True


# Models.


def offered_models() -> Iterator[tuple[str, Route]]:
    """Each by its bare name where that leads to it, else with its provider's."""
    taken: set[str] = set()
    for group in registry.router().choices():
        for route in group.routes:
            name = route.model.name if route.model.name not in taken else route.name
            taken.add(name)
            yield name, route


def _listed(dialect: str) -> dict[str, Any]:
    names = dict(offered_models())
    aliases = [rule.model for rule in settings.PARLEY_ROUTES if not rule.model.endswith("*")]
    listed = [_model(name, route) for name, route in names.items()]
    listed += [_model(name, None) for name in aliases if name not in names]
    return DIALECTS[dialect].HTTP_API.encode_models(listed)


def _one(path: str, dialect: str) -> dict[str, Any]:
    name = path.partition("/models/")[2]
    is_alias = "*" not in name and any(rule.matches(name) for rule in settings.PARLEY_ROUTES)
    found = dict(offered_models()).get(name) or next(
        (route for _, route in offered_models() if route.name == name), None
    )
    if found is None and not is_alias:
        raise model_not_found(name)
    return DIALECTS[dialect].HTTP_API.encode_model(_model(name, found))


def _model(name: str, route: Route | None) -> ListedModel:
    if route is None:
        return ListedModel(name=name, label=name)
    return ListedModel(name=name, label=route.model.shown, window=route.model.window, owner=route.provider.name)


# The key.


async def _standing(key: ApiKey) -> dict[str, Any]:
    account = usage_counters.account_of(key.pk)
    try:
        total = await in_database(
            usage_store.total_of, key.pk, minute=usage_store.this_minute(), day=usage_store.today()
        )
    except (DatabaseError, InterfaceError):
        total = Total()
    owner = usage_counters.owner_of(key.owner_id)
    if owner.must_be_read:
        await usage_counters.load_owner(key.owner_id)
    of_owner = budgets.pools(budgets.payer_of(key))["owner_day"].used
    minute = total.minute
    if not usage_counters.is_limited(key):
        # Its tokens are counted by the digester, its requests by this process alone.
        minute += account.minute.known
    day = total.day + account.day.writing + account.day.new
    return {
        "object": "key",
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes,
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "recording": mode_of(key),
        "limits": {name: _plain(getattr(key, name)) for name in usage_counters.LIMITS},
        "use": {
            "minute": _told(minute + account.minute.writing + account.minute.new),
            "day": _told(day),
            "month": _told(total.month_before + day),
            "running": len(account.running) + total.elsewhere,
        },
        # Chats and all keys of the person who owns this one.
        "owner": {
            "limits": {
                "tokens_per_day": owner.limits.tokens_per_day or None,
                "cost_per_day": _plain(owner.limits.cost_per_day or None),
            },
            "use": {"day": {"tokens": of_owner.tokens, "cost": _plain(of_owner.cost)}},
        },
    }


def _told(use: Use) -> dict[str, Any]:
    return {"requests": use.requests, "tokens": use.tokens, "cost": _plain(use.cost)}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int) else float(value)
