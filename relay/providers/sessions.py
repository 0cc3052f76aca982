"""HTTP client sessions, one for each running event loop.

A session belongs to its loop, so `close` ends those of the running one; code with a loop of its own (`asyncio.run` in a
thread) calls it at the end. Sessions follow no redirects, keep no cookies, and use no proxy of the environment. With
PARLEY_LOOPBACK_ONLY no request leaves the machine: tests run with it.
"""

import asyncio
import ipaddress
from functools import lru_cache

import aiohttp
from django.conf import settings

from relay.errors import AccessRefused
from relay.runtime.event_loop import PerLoop

USER_AGENT = "Parley"
KEEPALIVE_SECONDS = 30.0  # vendors close idle connections after a minute or more
# Of a vendor's reply: policies for browsers and the like are longer than the eight thousand that aiohttp takes.
LONGEST_HEADER = 64 * 1024

_sessions: PerLoop[dict[tuple[bool, bool], aiohttp.ClientSession]] = PerLoop(dict)
_connectors: PerLoop[dict[bool, aiohttp.TCPConnector]] = PerLoop(dict)


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
    """The connections of a running loop, shared by sessions and `raw_http`."""
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


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """By the address as it is written: a name other than localhost may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
