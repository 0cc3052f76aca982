"""Authentication of sockets: browser pages by cookie and origin, programs by API key.

A browser sends the cookie for every page that asks, so a socket with a cookie needs an `Origin` of ours. A key is sent
only by a program that has it, so a socket with a key needs no `Origin`.
"""

from __future__ import annotations

from typing import Any

from channels.auth import AuthMiddlewareStack

from history.access import keys
from history.access.key_cache import ApiKeyError, KeysUnavailable
from relay.consumers.origins import is_same_origin
from relay.consumers.sockets import DATABASE_AWAY, NOT_ALLOWED, UNAVAILABLE
from relay.runtime.async_db import in_database

BEARER = "bearer "


class SocketAuthentication:
    """The ASGI application in front of all sockets. A request with a key is never authenticated by its cookie."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.for_pages: Any = AuthMiddlewareStack(inner)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        try:
            if raw := read_api_key(scope):
                return await self.inner({**scope, **await _authenticate(raw)}, receive, send)
            if not is_same_origin(scope):
                return await reject(scope, receive, send)
            return await self.for_pages(scope, receive, send)
        except (KeysUnavailable, *DATABASE_AWAY):  # a consumer sees to its own errors: this is the authentication
            return await close_as_unavailable(receive, send)


async def _authenticate(raw: str) -> dict[str, Any]:
    try:
        api_key = await in_database(keys.authenticate, raw, scope="read")
    except KeysUnavailable:
        raise
    except ApiKeyError:
        return {"user": None, "api_key": None}
    return {"user": api_key.owner, "api_key": api_key}


async def reject(scope: Any, receive: Any, send: Any) -> None:
    """Refuse the handshake. Servers answer it with HTTP 403."""
    await receive()
    await send({"type": "websocket.close", "code": NOT_ALLOWED})


async def close_as_unavailable(receive: Any, send: Any) -> None:
    """Accept and close, so that the client gets a code: it may connect again in a few seconds."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": UNAVAILABLE})


def read_api_key(scope: Any) -> str:
    headers: dict[bytes, str] = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    given = headers.get(b"authorization", "")
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else headers.get(b"x-api-key", "").strip()
