"""The one door to the network: HTTP sessions, made when first needed, one for each running event loop.

A session belongs to its loop, so `close` ends those of the running one; whoever makes a loop of its own for a few calls
(`asyncio.run` in a thread) closes it at the end. Nothing here follows a redirect, keeps a cookie, or uses a proxy that
the environment names. With PARLEY_LOOPBACK_ONLY no request leaves the machine, whoever makes it: tests run with it.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from functools import lru_cache

import aiohttp
from django.conf import settings
from multidict import CIMultiDict

from relay.errors import AccessRefused
from relay.per_loop import PerLoop

USER_AGENT = "Parley"
# Kept open between calls for so long; vendors close after a minute or more.
KEEPALIVE_SECONDS = 30.0
# Of a vendor's reply: policies for browsers and the like are longer than the eight thousand that aiohttp takes.
LONGEST_HEADER = 64 * 1024
NOT_ADDED = CIMultiDict[None]((name, None) for name in ("User-Agent", "Accept", "Accept-Encoding", "Content-Type"))

_sessions: PerLoop[dict[tuple[bool, bool, bool], aiohttp.ClientSession]] = PerLoop(dict)


def session(
    loop: asyncio.AbstractEventLoop | None = None, *, keeps_alive: bool = True, is_bare: bool = False
) -> aiohttp.ClientSession:
    """`loop`: the running one, where that is known.

    `keeps_alive` off: a new connection for every call, for servers that close them in the wrong moment.

    `is_bare`: it adds nothing to a request and unpacks nothing of a reply, for bytes that are somebody else's.
    """
    of_loop, stays_here = _sessions.of(loop or asyncio.get_running_loop()), settings.PARLEY_LOOPBACK_ONLY
    found = of_loop.get((keeps_alive, is_bare, stays_here))
    if found is None or found.closed:
        found = _new_session(keeps_alive=keeps_alive, is_bare=is_bare, stays_here=stays_here)
        of_loop[keeps_alive, is_bare, stays_here] = found
    return found


async def close() -> None:
    """End the sessions of the running loop, and every call that still goes on in them."""
    for found in (_sessions.pop(asyncio.get_running_loop()) or {}).values():
        await found.close()


class _AsGiven(aiohttp.ClientRequest):
    """Without headers that the caller has not sent. To name them with each request is a tenth of what it costs."""

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        self._skip_auto_headers = NOT_ADDED


def _new_session(*, keeps_alive: bool, is_bare: bool, stays_here: bool) -> aiohttp.ClientSession:
    if keeps_alive:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS)
    else:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # Never compressed: a stream must not wait until a block is full.
        headers=None if is_bare else {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        request_class=_AsGiven if is_bare else aiohttp.ClientRequest,
        auto_decompress=not is_bare,
        max_line_size=LONGEST_HEADER,
        max_field_size=LONGEST_HEADER,
        trust_env=False,
        middlewares=(_stay_here,) if stays_here else (),
    )


async def _stay_here(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    if not is_loopback(request.url.host or ""):
        raise AccessRefused(f"PARLEY_LOOPBACK_ONLY is on and {request.url.host} is another machine", kind="permission")
    return await handler(request)


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """By the address as it is written: a name other than localhost may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
