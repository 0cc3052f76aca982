"""Authentication of callers by API key, in any header that a vendor's SDK uses, or in the URL."""

from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qsl, unquote_plus

from history.access import keys
from history.access.key_cache import ApiKeyError
from history.models import ApiKey
from relay.gateway.journal.records import PARLEY_KEY
from relay.runtime.async_db import begin_in_database, in_database

SCOPE = "relay"


async def authenticate(raw: str) -> ApiKey:
    """The caller's key, valid for the relay. Raises an ApiKeyError with the reason."""
    # Called with the key that is due, which mypy misses here.
    renew = partial(begin_in_database, keys.ring.renew)  # type: ignore[call-arg]
    if known := keys.recall(raw, scope=SCOPE, when_due=renew):
        return known
    return await in_database(keys.authenticate, raw, scope=SCOPE)


def find_key(headers: Mapping[str, str], query: str) -> tuple[str, str]:
    """The key, behind the name of its header. Some clients send two: a vendor's in one place and ours in another."""
    if own := headers.get(PARLEY_KEY, "").strip():
        return PARLEY_KEY, own
    authorization = headers.get("authorization", "")
    if authorization.startswith("Bearer parley_"):
        return "authorization", authorization[7:].strip()
    kind, _, credential = authorization.partition(" ")
    sent = [("authorization", secret)] if kind.lower() == "bearer" and (secret := credential.strip()) else []
    sent += [(name, headers[name]) for name in ("x-api-key", "x-goog-api-key", "api-key") if headers.get(name)]
    if "key=" in query and (key := dict(reversed(parse_qsl(query))).get("key")):
        sent.append(("?key=", key))
    if not sent:
        text = (
            "No API key. Send a key of Parley in Authorization: Bearer, x-api-key, x-goog-api-key, X-Parley-Key "
            "or ?key=."
        )
        raise ApiKeyError(text)
    return next((one for one in sent if one[1].startswith("parley_")), sent[0])


def without_key(query: str) -> str:
    """The query string without the key, which every log would show. The rest is unchanged."""
    if "key" not in query and "%" not in query:
        return query
    return "&".join(piece for piece in query.split("&") if unquote_plus(piece.partition("=")[0]) != "key")
