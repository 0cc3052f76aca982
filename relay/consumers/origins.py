"""Same-origin check of browser sockets: scheme, host and port of the `Origin` header.

A browser sends the cookie of this server with every socket to it, also from a page of another port, host or scheme.
Only the `Origin` header tells them apart, so all three parts have to be ours.
"""

from __future__ import annotations

import re
from io import BytesIO
from ipaddress import AddressValueError, IPv6Address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest

DEFAULT_PORTS = {"http": 80, "https": 443}
# An origin as RFC 6454 writes it: no user, path or query. `null` and lists of origins do not match.
_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII | re.IGNORECASE
)


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


def parse_origin(text: str) -> Origin | None:
    """None for everything that is not one origin with http or https."""
    found = _ORIGIN.fullmatch(text)
    if found is None:
        return None
    scheme, host = found["scheme"].lower(), found["host"].lower()
    if host.startswith("["):
        try:
            host = f"[{IPv6Address(host[1:-1]).compressed}]"
        except AddressValueError:
            return None
    return Origin(scheme, host, int(found["port"] or DEFAULT_PORTS[scheme]))


def is_same_origin(scope: Any) -> bool:
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


def _request_of(scope: Any) -> ASGIRequest:
    """The handshake as a request, so that hosts, proxies and repeated headers are read as Django reads them."""
    scheme = "https" if scope.get("scheme") in ("wss", "https") else "http"
    return ASGIRequest({**scope, "method": "GET", "scheme": scheme, "query_string": b""}, BytesIO())
