"""Endpoints that the gateway answers itself: the list of models and `/v1/me`."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from history.dialects import DIALECTS
from history.dialects.http_api import ListedModel
from history.dialects.json_access import as_bytes
from history.entries import JsonObject
from history.models import ApiKey
from relay.gateway.arrivals import Arrival
from relay.gateway.call.calls import guess_dialect
from relay.gateway.call.client import Client
from relay.gateway.call.errors import model_not_found
from relay.gateway.recording import mode_of
from relay.providers import registry
from relay.providers.http import Route
from relay.runtime.async_db import in_database
from relay.usage import budgets, counters, tables
from relay.usage.prices import Use, this_minute, today
from relay.usage.tables import Total

ME = "/v1/me"
LISTS = ("/v1/models", "/v1beta/models")


async def answer_get(
    path: str, headers: Mapping[str, str], key: ApiKey, client: Client, exchange: UUID, *, arrival: Arrival
) -> bool:
    """False if the path is not one of these."""
    if path == ME:
        arrived = {"key": arrival.key_header, "login": arrival.has_login, "account": arrival.has_account}
        answer: JsonObject = {**await _describe_key(key), "arrived": arrived}
    elif path in LISTS:
        answer = _list_models(guess_dialect(path, headers))
    elif path.startswith(tuple(f"{start}/" for start in LISTS)):
        answer = _find_model(path, guess_dialect(path, headers))
    else:
        return False
    await client.send_json(200, as_bytes(answer), [(b"x-parley-exchange-id", str(exchange).encode())])
    return True


def offered_models() -> Iterator[tuple[str, Route]]:
    """Each by its bare name if that is unique so far, else with its provider's."""
    taken: set[str] = set()
    for group in registry.router().choices():
        for route in group.routes:
            name = route.model.name if route.model.name not in taken else route.name
            taken.add(name)
            yield name, route


def _list_models(dialect: str) -> JsonObject:
    names = dict(offered_models())
    aliases = [rule.model for rule in settings.PARLEY_ROUTES if not rule.model.endswith("*")]
    listed = [_model(name, route) for name, route in names.items()]
    listed += [_model(name, None) for name in aliases if name not in names]
    return DIALECTS[dialect].HTTP_API.encode_models(listed)


def _find_model(path: str, dialect: str) -> JsonObject:
    name = path.partition("/models/")[2]
    is_alias = "*" not in name and any(rule.matches(name) for rule in settings.PARLEY_ROUTES)
    offered = list(offered_models())
    found = dict(offered).get(name) or next((route for _, route in offered if route.name == name), None)
    if found is None and not is_alias:
        raise model_not_found(name)
    return DIALECTS[dialect].HTTP_API.encode_model(_model(name, found))


def _model(name: str, route: Route | None) -> ListedModel:
    if route is None:
        return ListedModel(name=name, label=name)
    return ListedModel(name=name, label=route.model.shown, window=route.model.window, owner=route.provider.name)


async def _describe_key(key: ApiKey) -> JsonObject:
    account = counters.key_account(key.pk)
    try:
        total = await in_database(tables.total_of, key.pk, minute=this_minute(), day=today())
    except (DatabaseError, InterfaceError):
        total = Total()
    owner = counters.owner_account(key.owner_id)
    if owner.is_stale:
        await counters.load_owner(key.owner_id)
    owner_use = budgets.pools(budgets.payer_of(key))["owner_day"].used
    minute, day = total.minute + account.minute.unwritten, total.day + account.day.unwritten
    if not counters.has_limits(key):
        # Its tokens are counted by the digester, its requests by this process alone.
        minute += account.minute.known
    return {
        "object": "key",
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes,
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "recording": mode_of(key),
        "limits": {name: _number(getattr(key, name)) for name in counters.LIMITS},
        "use": {
            "minute": _serialize(minute),
            "day": _serialize(day),
            "month": _serialize(total.month_before + day),
            "running": len(account.running) + total.elsewhere,
        },
        # Chats and all keys of the owner.
        "owner": {
            "limits": {
                "tokens_per_day": owner.limits.tokens_per_day or None,
                "cost_per_day": _number(owner.limits.cost_per_day or None),
            },
            "use": {"day": {"tokens": owner_use.tokens, "cost": _number(owner_use.cost)}},
        },
    }


def _serialize(use: Use) -> JsonObject:
    return {"requests": use.requests, "tokens": use.tokens, "cost": _number(use.cost)}


def _number(value: int | Decimal | None) -> int | float | None:
    return value if value is None or isinstance(value, int) else float(value)
