"""Deadlines of Uvicorn for headers and for its end; it waits without limit for both.

Lifespan runs in each process before the first connection, so the limits hold for every way to start Uvicorn.
"""

from typing import Any

from django.conf import settings

from project.server.limits import HEADER_SECONDS, KEEP_ALIVE_SECONDS, MOST_FRAME_BYTES, FrameMeter

UVICORNS_KEEP_ALIVE = 5
UVICORNS_FRAME_BYTES = 16 * 1024 * 1024
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def set_deadlines(receive: Any) -> None:
    """Change the configuration of Uvicorn behind this lifespan. Options that the operator chose stay."""
    lifespan = getattr(receive, "__self__", None)
    if not type(lifespan).__module__.startswith("uvicorn."):
        return
    config = lifespan.config  # type: ignore[union-attr]
    config.http_protocol_class = with_header_deadline(config.http_protocol_class)
    if config.ws_protocol_class is not None:
        config.ws_protocol_class = with_frame_limit(config.ws_protocol_class)
    if config.timeout_keep_alive == UVICORNS_KEEP_ALIVE:
        config.timeout_keep_alive = KEEP_ALIVE_SECONDS
    if config.timeout_graceful_shutdown is None:
        config.timeout_graceful_shutdown = settings.PARLEY_RELAY_STOP_SECONDS
    if config.ws_max_size == UVICORNS_FRAME_BYTES:
        config.ws_max_size = MOST_FRAME_BYTES


def with_frame_limit(base: Any) -> Any:
    """A subclass of Uvicorn's websocket protocol that ends when the client sends too many frames."""

    class Socket(base):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            self.meter = FrameMeter()
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            if not self.meter.allows(data):
                self.transport.abort()
                return
            super().data_received(data)
            # Uvicorn waits without limit after a handshake that its parser refuses, for example with long headers.
            if not getattr(self, "handshake_initiated", True):
                self.transport.close()

    return Socket


def with_header_deadline(base: Any) -> Any:
    """A subclass of Uvicorn's protocol with either parser. `cycle` is its current request."""

    class Protocol(base):  # type: ignore[misc]
        _late: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_headers()

        def data_received(self, data: bytes) -> None:
            if self._late is None and (self.cycle is None or self.cycle.response_complete):
                self._expect_headers()
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._stop_waiting()

        def on_response_complete(self) -> None:
            before = self.cycle
            super().on_response_complete()
            if self.cycle is not before:  # a request that was sent before the answer to the last one
                self._stop_waiting()

        def handle_websocket_upgrade(self, *event: Any) -> None:
            self._stop_waiting()
            super().handle_websocket_upgrade(*event)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _expect_headers(self) -> None:
            self._late = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

        def _stop_waiting(self) -> None:
            late, self._late = self._late, None
            if late is not None:
                late.cancel()

        def _headers_are_late(self) -> None:
            self._late = None
            if not self.transport.is_closing():
                self.transport.write(TIMED_OUT)
                self.transport.close()

    return Protocol
