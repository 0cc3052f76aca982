"""Authentication of sockets: browser pages by cookie and origin, programs by API key.

A browser sends the cookie for every page that asks, so a socket with a cookie needs an `Origin` of ours. A key is sent
only by a program that has it, so a socket with a key needs no `Origin`.
"""

from __future__ import annotations

from typing import Any

from channels.auth import AuthMiddlewareStack

from history import keys
from history.keyring import ApiKeyError
from relay.consumers.origins import is_same_origin
from relay.consumers.sockets import NOT_ALLOWED
from relay.database import in_database

BEARER = "bearer "


class Doors:
    """The ASGI application in front of all sockets. A request with a key is never authenticated by its cookie."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.for_pages: Any = AuthMiddlewareStack(inner)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        raw = key_in(scope)
        if not raw:
            return await (self.for_pages if is_same_origin(scope) else refuse)(scope, receive, send)
        try:
            api_key = await in_database(keys.authenticate, raw, scope="read")
        except ApiKeyError as error:
            scope = {**scope, "user": None, "api_key": None, "key_problem": str(error)}
        else:
            scope = {**scope, "user": api_key.owner, "api_key": api_key}
        return await self.inner(scope, receive, send)


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Refuse the handshake. Servers answer it with HTTP 403."""
    await receive()
    await send({"type": "websocket.close", "code": NOT_ALLOWED})


def key_in(scope: Any) -> str:
    headers: dict[bytes, str] = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    given = headers.get(b"authorization", "")
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else headers.get(b"x-api-key", "").strip()
