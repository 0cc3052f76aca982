"""What ours is held against: an ASGI application that passes bytes on with aiohttp and does nothing else at all."""

from __future__ import annotations

import logging
import os
from typing import Any

import aiohttp

# Neither relay writes a line for each call.
logging.disable(logging.WARNING)

UPSTREAM = os.environ.get("BENCH_UPSTREAM", "")
_session: aiohttp.ClientSession | None = None


def session() -> aiohttp.ClientSession:
    global _session
    if _session is None:
        _session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
    return _session


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/healthz":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = {"content-type": "application/json", "authorization": "Bearer upstream"}
    async with session().post(UPSTREAM + scope["path"], data=body, headers=headers, allow_redirects=False) as reply:
        passed = [pair for pair in reply.raw_headers if pair[0].lower() in (b"content-type", b"content-length")]
        await send({"type": "http.response.start", "status": reply.status, "headers": passed})
        async for chunk in reply.content.iter_any():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
