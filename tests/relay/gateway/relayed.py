"""The relay under a real server, in a thread of the test's own process, between real clients and vendors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn

from relay.gateway import application as gateway
from relay.gateway import recording
from relay.gateway.journal.records import Accepted, Ended, Record, ReplyBytes
from relay.gateway.journal.writer import Journal, read
from relay.gateway.limits import redis_limits, usage_counters
from relay.gateway.references import continuations, ownership
from relay.gateway.routing import routes, vendor_affinity
from relay.providers import sessions
from relay.runtime.async_db import close_connections
from tests.processes import wait_for
from tests.relay.gateway.quick_server import QuickServer

R = TypeVar("R", bound=Record)


class Relay:
    """Where it listens, and what its journal says."""

    def __init__(self, port: int, journal: Journal) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.journal = journal

    def ended(self, count: int = 1) -> list[Ended]:
        """Once so many calls have ended."""
        wait_for(lambda: len(self._of(Ended)) >= count, seconds=10, what=f"the end of call {count}")
        return self._of(Ended)

    def accepted(self) -> list[Accepted]:
        return self._of(Accepted)

    def replied(self) -> bytes:
        """What came back, whether it was written in pieces or with the end."""
        pieces = [
            record.data if isinstance(record, ReplyBytes) else record.reply
            for _, record in read(self.journal.folder)
            if isinstance(record, ReplyBytes | Ended)
        ]
        return b"".join(pieces)

    def _of(self, kind: type[R]) -> list[R]:
        return [record for _, record in read(self.journal.folder) if isinstance(record, kind)]


@contextmanager
def relaying() -> Iterator[Relay]:
    recording.begin_anew()
    server = QuickServer(uvicorn.Config(_application, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, name="relay", daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, seconds=10, what="the relay listening")
        yield Relay(server.servers[0].sockets[0].getsockname()[1], recording.journal())
    finally:
        server.should_exit = True
        thread.join(10)
        close_connections()
        for kept in (usage_counters, continuations, ownership, routes, vendor_affinity):
            kept.forget_all()
        recording.begin_anew()


async def _application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await gateway.application(scope, receive, send)
        return
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await sessions.close()
            await redis_limits.close()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
