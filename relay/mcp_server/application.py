"""The door for MCP clients: a bare ASGI application for `/mcp`, which `project.asgi` mounts in front of Django.

Streamable HTTP without sessions: every POST stands for itself, so any process may answer it. There is no stream for
the server to speak first, and nothing to end: GET and DELETE are refused, as the protocol allows. A browser that was
tricked into calling us is recognised by its Host or its Origin; everybody else by the API key.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from history.access import keys
from history.access.key_cache import ApiKeyError, MalformedKey, ScopeMissing
from history.api.throttling import is_within_limit
from history.dialects.json_access import as_bytes
from history.models import ApiKey
from relay.consumers.authentication import read_api_key
from relay.consumers.origins import is_same_origin
from relay.mcp_server.tools import tools_for
from relay.runtime.async_db import in_database

logger = logging.getLogger(__name__)

PATHS = ("/mcp", "/mcp/")


class HttpRefusal(Exception):
    """Before the protocol begins: an HTTP status, and words for whoever has to mend it."""

    def __init__(self, status: int, words: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(words)
        self.status, self.headers = status, headers


def serves(path: str) -> bool:
    return path in PATHS


async def application(scope: Any, receive: Any, send: Any) -> None:
    try:
        _check_method(scope)
        _check_host(scope)
        key = await _identified(scope)
        protocol = await asyncio.to_thread(_protocol)
        await protocol.answer({**scope, "api_key": key}, receive, send)
    except HttpRefusal as refusal:
        await _refuse(send, refusal)


def _protocol() -> Any:
    from relay.mcp_server import protocol

    return protocol


def _check_method(scope: Any) -> None:
    if scope["method"] != "POST":
        raise HttpRefusal(405, "This MCP server answers POST only.", (b"allow", b"POST"))


def _check_host(scope: Any) -> None:
    """Reject pages of other sites, also after DNS rebinding: their `Origin` or `Host` header is not ours."""
    sent = [name for name, _ in scope["headers"]]
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not validate_host(split_domain_port(hosts[0])[0], settings.ALLOWED_HOSTS):
        raise HttpRefusal(421, "This host is not one of ALLOWED_HOSTS.")
    if b"origin" in sent and not is_same_origin(scope):
        raise HttpRefusal(403, "Another site may not call this MCP server from a browser.")


async def _identified(scope: Any) -> ApiKey:
    raw = read_api_key(scope)
    try:
        if not raw:
            raise MalformedKey("No API key: send one of Parley in Authorization: Bearer.")
        known = keys.recall(raw)
        key = known if known is not None else await in_database(keys.authenticate, raw)
        if not tools_for(key):
            raise ScopeMissing(f"The API key {key.prefix} has neither the scope 'read' nor 'write': use one that has.")
    except ApiKeyError as error:
        raise HttpRefusal(error.status, str(error), *_hints(error)) from None
    if not await in_database(is_within_limit, f"key-{key.pk}"):
        raise HttpRefusal(429, "Too many requests in this minute.", (b"retry-after", b"60"))
    return key


def _hints(error: ApiKeyError) -> tuple[tuple[bytes, bytes], ...]:
    if error.retry_helps:
        return ((b"retry-after", b"2"),)
    return ((b"www-authenticate", b'Bearer realm="Parley"'),) if error.status == 401 else ()


async def _refuse(send: Any, refusal: HttpRefusal) -> None:
    """In the form of the protocol, which has no place for a request that was not read."""
    body = as_bytes({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": str(refusal)}})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *refusal.headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
