"""Authentication of callers by API key, in any header that a vendor's SDK uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from history.access import keys
from history.access.key_cache import ApiKeyError
from history.models import ApiKey
from relay.gateway.call.headers import key_in
from relay.runtime.async_db import begin_in_database, in_database

SCOPE = "relay"


class KeyMissing(ApiKeyError):
    """The caller sent none at all."""


async def authenticate(headers: Mapping[str, str], query: str) -> ApiKey:
    """The caller's key, good for the relay; else an ApiKeyError that says why not."""
    raw = _key(headers, query)
    if known := keys.recall(raw, scope=SCOPE, when_due=_renew):
        return known
    return await in_database(keys.authenticate, raw, scope=SCOPE)


def _renew(raw: str) -> None:
    begin_in_database(keys.ring.renew, raw)


def _key(headers: Mapping[str, str], query: str) -> str:
    """Some clients send two: theirs in one place and ours in another."""
    if (given := headers.get("authorization", "")).startswith("Bearer parley_"):
        return given[7:].strip()
    others = ""
    for word in _given(headers, query):
        if word.startswith("parley_"):
            return word
        others = others or word
    if not others:
        raise KeyMissing("No API key: send one of Parley in Authorization: Bearer, x-api-key, x-goog-api-key or ?key=.")
    return others


def _given(headers: Mapping[str, str], query: str) -> Iterator[str]:
    kind, _, credential = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and credential:
        yield credential.strip()
    yield from (headers[name] for name in ("x-api-key", "x-goog-api-key", "api-key") if headers.get(name))
    if query and (key := key_in(query)):
        yield key
