"""Authentication of sockets: browser pages by cookie and origin, programs by API key.

A browser sends the cookie of this server with every socket to it, also from a page of another port, host or scheme.
Only the `Origin` header tells them apart, so a socket with a cookie needs an `Origin` whose scheme, host and port are
ours. A key is sent only by a program that has it, so a socket with a key needs no `Origin`.
"""

import re
from io import BytesIO
from ipaddress import AddressValueError, IPv6Address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from channels.auth import AuthMiddlewareStack
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest

from history.access import keys
from history.access.key_cache import ApiKeyError, KeysUnavailable, bearer_secret
from relay.consumers.base import DATABASE_AWAY, CloseCode
from relay.runtime.asgi import Receive, Scope, Send
from relay.runtime.async_db import in_database

DEFAULT_PORTS = {"http": 80, "https": 443}
# An origin as RFC 6454 writes it: no user, path or query. `null` and lists of origins do not match.
_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII | re.IGNORECASE
)


class SocketAuthentication:
    """The ASGI application in front of all sockets. A request with a key is never authenticated by its cookie."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.for_pages: Any = AuthMiddlewareStack(inner)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if raw := read_api_key(scope):
                await self.inner({**scope, **await _authenticate(raw)}, receive, send)
            elif is_same_origin(scope):
                await self.for_pages(scope, receive, send)
            else:
                await reject(scope, receive, send)
        except (KeysUnavailable, *DATABASE_AWAY):  # a consumer sees to its own errors: this is the authentication
            # Accepted first, so that the client gets the code: it may connect again in a few seconds.
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": CloseCode.UNAVAILABLE})


async def _authenticate(raw: str) -> dict[str, Any]:
    try:
        api_key = await in_database(keys.authenticate, raw, scope="read")
    except KeysUnavailable:
        raise
    except ApiKeyError:
        return {"user": None, "api_key": None}
    return {"user": api_key.owner, "api_key": api_key}


async def reject(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse the handshake. Servers answer it with HTTP 403."""
    await receive()
    await send({"type": "websocket.close", "code": CloseCode.NOT_ALLOWED})


def read_api_key(scope: Any) -> str:
    headers: dict[bytes, str] = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    return bearer_secret(headers.get(b"authorization", "")) or headers.get(b"x-api-key", "").strip()


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


def parse_origin(text: str) -> Origin | None:
    """None for everything that is not one origin with http or https."""
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme, host = match["scheme"].lower(), match["host"].lower()
    if host.startswith("["):
        try:
            host = f"[{IPv6Address(host[1:-1]).compressed}]"
        except AddressValueError:
            return None
    return Origin(scheme, host, int(match["port"] or DEFAULT_PORTS[scheme]))


def is_same_origin(scope: Scope) -> bool:
    """Whether the page that opens this socket is one of ours. A missing `Origin` header is not."""
    request = _request_of(scope)
    origin = parse_origin(request.META.get("HTTP_ORIGIN", ""))
    return origin is not None and origin in _own_origins(request)


def _own_origins(request: ASGIRequest) -> set[Origin]:
    """The address in `PARLEY_URL`, and the address that this request was sent to."""
    configured, requested = _configured_origin(), _requested_origin(request)
    # Behind a proxy that is not trusted every request looks like plain http. Pages over plain http are not ours there.
    if configured and requested and configured.host == requested.host and configured.scheme == "https":
        requested = requested if requested.scheme == "https" else None
    return {one for one in (configured, requested) if one is not None}


def _configured_origin() -> Origin | None:
    """`PARLEY_URL` may have a path, a host in Unicode, or an IPv6 address in any notation."""
    address = urlsplit(settings.PARLEY_URL)
    host = address.hostname or ""
    try:
        host = f"[{host}]" if ":" in host else host.encode("idna").decode()
        port = address.port
    except (UnicodeError, ValueError):
        return None
    return parse_origin(f"{address.scheme}://{host}" + (f":{port}" if port else ""))


def _requested_origin(request: ASGIRequest) -> Origin | None:
    """By the Host header, which `ALLOWED_HOSTS` has to allow, and the scheme that Django sees."""
    try:
        return parse_origin(f"{request.scheme}://{request.get_host()}")
    except DisallowedHost:
        return None


def _request_of(scope: Scope) -> ASGIRequest:
    """The handshake as a request, so that hosts, proxies and repeated headers are read as Django reads them."""
    scheme = "https" if scope.get("scheme") in ("wss", "https") else "http"
    return ASGIRequest({**scope, "method": "GET", "scheme": scheme, "query_string": b""}, BytesIO())
