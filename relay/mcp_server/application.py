"""The MCP endpoint: a bare ASGI application for `/mcp`, which `project.asgi` mounts in front of Django.

Streamable HTTP without sessions: every POST is independent, so any process may answer it, and there is nothing to GET
or DELETE. Forged calls of browsers are refused by their Host or Origin, all others need an API key.
"""

import asyncio
from importlib import import_module

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from history.access import keys
from history.access.key_cache import ApiKeyError, MalformedKey, ScopeMissing
from history.api.authentication import is_within_limit
from history.dialects.json_access import as_bytes
from history.models import ApiKey
from relay.consumers.authentication import is_same_origin, read_api_key
from relay.mcp_server.tools import tools_for
from relay.runtime.asgi import Receive, Scope, Send
from relay.runtime.async_db import in_database

PATHS = ("/mcp", "/mcp/")


class HttpRefusal(Exception):
    """An HTTP status and text, before the protocol begins."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(text)
        self.status, self.headers = status, headers


def serves(path: str) -> bool:
    return path in PATHS


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        if scope["method"] != "POST":
            raise HttpRefusal(405, "This MCP server supports only POST.", (b"allow", b"POST"))
        _check_host(scope)
        key = await _authenticate(scope)
        # The SDK takes long to import, and is imported on first use.
        protocol = await asyncio.to_thread(import_module, "relay.mcp_server.protocol")
        await protocol.answer({**scope, "api_key": key}, receive, send)
    except HttpRefusal as refusal:
        # A JSON-RPC error without an id, because the request was not read.
        body = refusal_body(str(refusal))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *refusal.headers]
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def refusal_body(text: str) -> bytes:
    return as_bytes({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}})


def _check_host(scope: Scope) -> None:
    """Reject pages of other sites, also after DNS rebinding: their `Origin` or `Host` header is not ours."""
    names = [name for name, _ in scope["headers"]]
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not validate_host(split_domain_port(hosts[0])[0], settings.ALLOWED_HOSTS):
        raise HttpRefusal(421, "This host is not in ALLOWED_HOSTS.")
    if b"origin" in names and not is_same_origin(scope):
        raise HttpRefusal(403, "Browser pages of other sites cannot call this MCP server.")


async def _authenticate(scope: Scope) -> ApiKey:
    raw = read_api_key(scope)
    try:
        if not raw:
            raise MalformedKey("No API key. Send a key of Parley in Authorization: Bearer.")
        known = keys.recall(raw)
        key = known if known is not None else await in_database(keys.authenticate, raw)
        if not tools_for(key):
            raise ScopeMissing(
                f"The API key {key.prefix} has neither the scope 'read' nor 'write'. Use a key with one of them."
            )
    except ApiKeyError as error:
        hints = [(b"www-authenticate", b'Bearer realm="Parley"')] if error.status == 401 else []
        headers = [(b"retry-after", b"2")] if error.retry_helps else hints
        raise HttpRefusal(error.status, str(error), *headers) from None
    if not await in_database(is_within_limit, f"key-{key.pk}"):
        raise HttpRefusal(429, "Too many requests in this minute. Try again later.", (b"retry-after", b"60"))
    return key
