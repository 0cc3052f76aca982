"""CPU of whole pages against that of /healthz, and the requests and bytes of a chat page that nothing is cached of.

Requests go through the ASGI handler with all middleware, as a signed-in user, in this process. CPU is that of the
process, so a busy machine does not count.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import statistics
import time
from typing import Any, NamedTuple

from django.test import Client

from bench.load import Loaded, vocabulary
from bench.measure import Line, Table
from history.models import Session
from history.record import daily_counts
from history.templatetags.fragments import fragments
from project.server.static_files import collect_when_changed

GOAL, SESSION_GOAL = 6.0, 8.0
MOST_REQUESTS, MOST_KB = 12, 80
WORDS = vocabulary()
ASSET = re.compile(r'(?:href|src)="(/static/[^"#]+\.(?:css|js|svg))[#"]')


class Response(NamedTuple):
    status: int
    body: bytes
    is_compressed: bool

    @property
    def text(self) -> str:
        return (gzip.decompress(self.body) if self.is_compressed else self.body).decode()


def measure(loaded: Loaded, table: Table, *, rounds: int) -> None:
    collect_when_changed()  # pages as `serve` shows them
    daily_counts.rebuild()
    owner = loaded.large_owner
    own = Session.objects.filter(owner=owner, message_count__gte=8, message_count__lte=12)
    session = (own.order_by("-last_activity_at").first() or loaded.short).get_absolute_url()
    pages = [
        ("home", "/", GOAL),
        ("history", "/history/", GOAL),
        ("history, two words", f"/history/?q={WORDS[2]}+{WORDS[30]}", GOAL),
        ("charts of a year", "/charts/?range=1y", GOAL),
        ("session of ten messages", session, SESSION_GOAL),
    ]
    reader = Reader(owner)
    asyncio.run(_measure(reader, pages, table, rounds=max(5, rounds // 4)))
    asyncio.run(_count_cold(reader, session, table))


class Reader:
    """A signed-in user with a browser that accepts gzip."""

    def __init__(self, user: Any) -> None:
        from project.asgi import django_application  # late: it lists the collected files when it is imported

        self.application: Any = django_application
        client = Client()
        client.force_login(user)
        cookies = "; ".join(f"{name}={cookie.value}" for name, cookie in client.cookies.items())
        self.headers = [(b"host", b"localhost"), (b"cookie", cookies.encode()), (b"accept-encoding", b"gzip")]

    async def get(self, address: str) -> Response:
        path, _, query = address.partition("?")
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": self.headers}
        messages = [{"type": "http.request", "body": b"", "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop() if messages else await asyncio.Future()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        headers = {name.lower(): value for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Response(sent[0]["status"], body, headers.get(b"content-encoding") == b"gzip")

    async def cpu(self, address: str, *, times: int, is_fresh: bool = False) -> float:
        """Seconds of CPU of one request."""
        begin = time.process_time()
        for _ in range(times):
            if is_fresh:
                fragments.clear()
            response = await self.get(address)
            assert response.status == 200, address
        return (time.process_time() - begin) / times


async def _measure(reader: Reader, pages: list[tuple[str, str, float]], table: Table, *, rounds: int) -> None:
    for name, address, goal in pages:
        for warm in (address, "/healthz"):
            await reader.cpu(warm, times=3)
        times = [
            (
                await reader.cpu(address, times=3),
                await reader.cpu("/healthz", times=5),
                await reader.cpu(address, times=1, is_fresh=True),
            )
            for _ in range(rounds)
        ]
        page, base, fresh = (statistics.median(column) for column in zip(*times, strict=True))
        note = f"{page * 1e3:.1f} ms against {base * 1e3:.1f} ms of /healthz"
        table.add(Line(f"CPU of a page: {name}", page / base, "×", goal, note=note))
        table.add(Line(f"CPU of a page: {name}, without cached fragments", fresh / base, "×"))


async def _count_cold(reader: Reader, address: str, table: Table) -> None:
    page = await reader.get(address)
    assets = [await reader.get(asset) for asset in sorted(set(ASSET.findall(page.text)))]
    assert all(asset.status == 200 for asset in assets)
    size = sum(len(response.body) for response in (page, *assets)) / 1000
    # The page, what it links to, and its socket.
    table.add(Line("requests of a chat page without a cache", len(assets) + 2, "", MOST_REQUESTS))
    table.add(Line("bytes of a chat page without a cache, compressed", size, "KB", MOST_KB))
