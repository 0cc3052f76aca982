"""Connections to providers: HTTP sessions, one for each running event loop, and raw requests for the relay.

`close` ends those of the running loop; code with a loop of its own (`asyncio.run` in a thread) calls it at the end.
Sessions follow no redirects, keep no cookies, and use no proxy of the environment. With PARLEY_LOOPBACK_ONLY no
request leaves the machine: tests run with it. Raw requests and replies pass byte for byte through aiohttp's pool, TLS
and framing, but not through its session (decision 11).
"""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from django.conf import settings
from yarl import URL

from relay.errors import AccessRefused
from relay.providers.endpoints import is_loopback as is_loopback
from relay.runtime.event_loop import PerLoop

USER_AGENT = "Parley"
KEEPALIVE_SECONDS = 30.0  # vendors close idle connections after a minute or more
# Of a vendor's reply: policies for browsers and the like are longer than the eight thousand that aiohttp takes.
LONGEST_HEADER = 64 * 1024

_sessions: PerLoop[dict[tuple[bool, bool], aiohttp.ClientSession]] = PerLoop(dict)
_connectors: PerLoop[dict[bool, aiohttp.TCPConnector]] = PerLoop(dict)
SHORT = 64 * 1024  # a longer body is not joined with the head
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
REPEATABLE = WITHOUT_BODY | {"PUT", "DELETE"}  # repeated once if a kept connection turns out to be closed


def session(*, keeps_alive: bool = True) -> aiohttp.ClientSession:
    """`keeps_alive` off: a new connection for every call, for servers that close them in the wrong moment."""
    loop, is_loopback_only = asyncio.get_running_loop(), settings.PARLEY_LOOPBACK_ONLY
    of_loop = _sessions.of(loop)
    found = of_loop.get((keeps_alive, is_loopback_only))
    if found is None or found.closed:
        found = of_loop[keeps_alive, is_loopback_only] = aiohttp.ClientSession(
            connector=connector(loop, keeps_alive=keeps_alive),
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Never compressed: a stream must not wait until a block is full.
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
            trust_env=False,
            middlewares=(_only_loopback,) if is_loopback_only else (),
        )
    return found


def available(content: aiohttp.StreamReader) -> bytes:
    """What has come and was not read, also if the connection broke after it: then aiohttp only raises the error."""
    return content.read_nowait() if content.exception() is None else content._read_nowait(-1)


async def read_available(content: aiohttp.StreamReader) -> bytes:
    """What has come, or else what comes next; nothing at the end."""
    return available(content) or await content.readany()


def connector(loop: asyncio.AbstractEventLoop, *, keeps_alive: bool) -> aiohttp.TCPConnector:
    """Shared by sessions and raw requests."""
    of_loop = _connectors.of(loop)
    found = of_loop.get(keeps_alive)
    if found is None or found.closed:
        found = of_loop[keeps_alive] = (
            aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS)
            if keeps_alive
            else aiohttp.TCPConnector(limit=0, force_close=True)
        )
    return found


def check_loopback(host: str) -> None:
    if settings.PARLEY_LOOPBACK_ONLY and not is_loopback(host):
        raise AccessRefused(f"PARLEY_LOOPBACK_ONLY is on and {host} is another machine", kind="permission")


async def close() -> None:
    """End the sessions of the running loop, and every call in them."""
    loop = asyncio.get_running_loop()
    for found in (_sessions.pop(loop) or {}).values():
        await found.close()
    for pool in (_connectors.pop(loop) or {}).values():
        await pool.close()


async def _only_loopback(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    check_loopback(request.url.host or "")
    return await handler(request)


@dataclass(slots=True, kw_only=True)
class RawRequest:
    """`headers` without `Host` and `Content-Length`. They are sent as UTF-8, other bytes as Python escapes them."""

    url: str
    headers: Mapping[str, str]
    body: bytes


class Response:
    """Status and headers have come, `content` follows. Always close it."""

    def __init__(self, connection: Connection, message: RawResponseMessage, content: aiohttp.StreamReader) -> None:
        self._connection, self.content = connection, content
        self.status, self.headers, self.raw_headers = message.code, message.headers, message.raw_headers

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def close(self) -> None:
        """Keep the connection if the reply is complete; else close it, so that the upstream stops."""
        if self.content.is_eof():
            self._connection.release()
        else:
            self._connection.close()


async def ask(
    request: RawRequest, *, method: str, loop: AbstractEventLoop, keeps_alive: bool, connect_seconds: float
) -> Response:
    """Raises aiohttp's errors, or OSError. The caller sets the timeout."""
    target = _target(request.url)
    check_loopback(target.host)
    pool = connector(loop, keeps_alive=keeps_alive)
    head = _head(request, method=method, target=target, keeps_alive=keeps_alive)
    connection = await _connected(pool, target, connect_seconds)
    try:
        return await _answered(connection, head, request.body, method=method)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        if method not in REPEATABLE:
            raise
    return await _answered(await _connected(pool, target, connect_seconds), head, request.body, method=method)


class _Target(aiohttp.ClientRequest):
    """The address for the connector; it is never sent."""

    def __init__(self, url: URL) -> None:
        super().__init__("GET", url)
        del self.loop  # would be kept for as long as this

    @cached_property
    def connection_key(self) -> ConnectionKey:
        """Cached: it takes as long as writing the head."""
        return super().connection_key


@lru_cache(maxsize=1_000)
def _target(url: str) -> _Target:
    return _Target(URL(url, encoded=True))


def _head(request: RawRequest, *, method: str, target: _Target, keeps_alive: bool) -> bytes:
    lines = [f"{method} {target.url.raw_path_qs} HTTP/1.1", f"Host: {target.headers['Host']}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or method not in WITHOUT_BODY:
        lines.append(f"Content-Length: {len(request.body)}")
    if not keeps_alive:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode("utf-8", "surrogateescape")
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
        raise ValueError("a header with a line break in it")
    return head + b"\r\n\r\n"


async def _connected(connector: aiohttp.BaseConnector, target: _Target, seconds: float) -> Connection:
    try:
        return await connector.connect(target, traces=[], timeout=_within(seconds))
    except TimeoutError as error:
        raise aiohttp.ConnectionTimeoutError(f"no connection to {target.host}") from error


@lru_cache(maxsize=100)
def _within(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=seconds)


async def _answered(connection: Connection, head: bytes, body: bytes, *, method: str) -> Response:
    try:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(
            skip_payload=method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
        )
        if len(body) <= SHORT:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return Response(connection, *await _first(protocol))
    except BaseException:
        connection.close()
        raise


async def _first(protocol: ResponseHandler) -> tuple[RawResponseMessage, Any]:
    """Interim responses (100, 103) are skipped."""
    try:
        while True:
            message, content = await protocol.read()
            if message.code >= 200 or message.code == 101:
                return message, content
    except HttpProcessingError as error:
        raise aiohttp.ClientPayloadError(f"invalid HTTP response ({error.message})") from error
