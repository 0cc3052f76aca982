"""Who may open a socket. A page is known by its cookie, and then its origin must be ours; a program by its key.

A cookie is sent by the browser whoever asks, so a foreign page could speak in its owner's name: hence the check of the
origin. A key is in the hands of whoever sends it, so programs, which have no origin, need none.
"""

from __future__ import annotations

from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.security.websocket import AllowedHostsOriginValidator

from history import keys
from history.keyring import ApiKeyError
from relay.database import in_database

BEARER = "bearer "


class Doors:
    """An ASGI application in front of the sockets: with a key past the cookie, else through origin and session."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.for_pages = AllowedHostsOriginValidator(AuthMiddlewareStack(inner))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        raw = key_in(scope)
        if not raw:
            return await self.for_pages(scope, receive, send)
        try:
            api_key = await in_database(keys.authenticate, raw, scope="read")
        except ApiKeyError as error:
            scope = {**scope, "user": None, "api_key": None, "key_problem": str(error)}
        else:
            scope = {**scope, "user": api_key.owner, "api_key": api_key}
        return await self.inner(scope, receive, send)


def key_in(scope: Any) -> str:
    headers: dict[bytes, str] = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    given = headers.get(b"authorization", "")
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else headers.get(b"x-api-key", "").strip()
