"""HTTP client sessions, one for each running event loop.

A session belongs to its loop, so `close` ends those of the running one; whoever makes a loop of its own for a few calls
(`asyncio.run` in a thread) closes it at the end. Nothing here follows a redirect, keeps a cookie, or uses a proxy that
the environment names. With PARLEY_LOOPBACK_ONLY no request leaves the machine, whoever makes it: tests run with it.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import lru_cache

import aiohttp
from django.conf import settings

from relay.errors import AccessRefused
from relay.runtime.per_loop import PerLoop

USER_AGENT = "Parley"
# Kept open between calls for so long; vendors close after a minute or more.
KEEPALIVE_SECONDS = 30.0
# Of a vendor's reply: policies for browsers and the like are longer than the eight thousand that aiohttp takes.
LONGEST_HEADER = 64 * 1024

_sessions: PerLoop[dict[tuple[bool, bool], aiohttp.ClientSession]] = PerLoop(dict)
_connectors: PerLoop[dict[bool, aiohttp.TCPConnector]] = PerLoop(dict)


def session(*, keeps_alive: bool = True) -> aiohttp.ClientSession:
    """`keeps_alive` off: a new connection for every call, for servers that close them in the wrong moment."""
    loop, stays_here = asyncio.get_running_loop(), settings.PARLEY_LOOPBACK_ONLY
    of_loop = _sessions.of(loop)
    found = of_loop.get((keeps_alive, stays_here))
    if found is None or found.closed:
        found = of_loop[keeps_alive, stays_here] = _new_session(loop, keeps_alive=keeps_alive, stays_here=stays_here)
    return found


def connector(loop: asyncio.AbstractEventLoop, *, keeps_alive: bool) -> aiohttp.TCPConnector:
    """The connections of a running loop, for whoever does without a session (`plain`): the same pool for both."""
    of_loop = _connectors.of(loop)
    found = of_loop.get(keeps_alive)
    if found is None or found.closed:
        found = of_loop[keeps_alive] = _new_connector(keeps_alive=keeps_alive)
    return found


def check_stays_here(host: str) -> None:
    if settings.PARLEY_LOOPBACK_ONLY and not is_loopback(host):
        raise AccessRefused(f"PARLEY_LOOPBACK_ONLY is on and {host} is another machine", kind="permission")


async def close() -> None:
    """End the sessions of the running loop, and every call that still goes on in them."""
    loop = asyncio.get_running_loop()
    for found in (_sessions.pop(loop) or {}).values():
        await found.close()
    for pool in (_connectors.pop(loop) or {}).values():
        await pool.close()


def _new_connector(*, keeps_alive: bool) -> aiohttp.TCPConnector:
    if keeps_alive:
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS)
    return aiohttp.TCPConnector(limit=0, force_close=True)


def _new_session(loop: asyncio.AbstractEventLoop, *, keeps_alive: bool, stays_here: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector(loop, keeps_alive=keeps_alive),
        connector_owner=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        # Never compressed: a stream must not wait until a block is full.
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        max_line_size=LONGEST_HEADER,
        max_field_size=LONGEST_HEADER,
        trust_env=False,
        middlewares=(_stay_here,) if stays_here else (),
    )


async def _stay_here(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    check_stays_here(request.url.host or "")
    return await handler(request)


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """By the address as it is written: a name other than localhost may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
