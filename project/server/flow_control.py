"""Let a stream wait for whoever reads it, under Daphne too.

`await send(…)` is meant to take as long as the client needs. Uvicorn and Granian do that; Daphne returns at once and
keeps in memory what the client has not taken yet, all of a large download if the client is slow. Twisted knows when its
buffer is full and tells whoever registers with it as a producer; that is what this does for each answer in pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

# How long a client may take to read what was sent before its socket was closed.
CLOSE_SECONDS = 30

Message = Mapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


def paced(send: Send) -> Send:
    """The same `send`, or where the server does not wait by itself, one that does."""
    request = _request_behind(send) if isinstance(send, partial) else None
    return send if request is None else _Paced(send, request)


def paced_socket(send: Send) -> Send:
    """The same for a socket: each message waits until the client has read most of those before it."""
    protocol = _socket_behind(send) if isinstance(send, partial) else None
    return send if protocol is None else _PacedSocket(send, protocol)


def _socket_behind(send: partial[Awaitable[None]]) -> Any:
    """The protocol of a socket, where Daphne is the server."""
    return next((one for one in send.args if hasattr(one, "sendMessage") and hasattr(one, "transport")), None)


def _request_behind(send: partial[Awaitable[None]]) -> Any:
    """Twisted's request, where Daphne is the server: its `send` is a function with the request already filled in."""
    return next((one for one in send.args if hasattr(one, "registerProducer") and hasattr(one, "channel")), None)


class _Producer:
    """A producer, in Twisted's words: told to pause when the buffer is full, and to resume when it is empty."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.is_registered = False

    def pauseProducing(self) -> None:  # noqa: N802 - their names
        self.may_go_on.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self.may_go_on.set()

    def stopProducing(self) -> None:  # noqa: N802
        self.may_go_on.set()


class _Paced(_Producer):
    """Sends the pieces of an HTTP response as the client takes them."""

    def __init__(self, send: Send, request: Any) -> None:
        super().__init__(send)
        self.request = request

    async def __call__(self, message: Message) -> None:
        is_piece = message["type"] == "http.response.body" and bool(message.get("more_body"))
        self._register(is_piece and self.request.channel is not None)
        await self.send(message)
        if is_piece:
            await self.may_go_on.wait()

    def _register(self, wanted: bool) -> None:
        """Twisted wants to be left before the last piece."""
        if wanted and not self.is_registered:
            self.request.registerProducer(self, True)
        elif self.is_registered and not wanted and self.request.channel is not None:
            self.request.unregisterProducer()
        self.is_registered = wanted

    def cut(self) -> None:
        """End the connection where it is: an answer that broke off must not look whole, nor keep its reader waiting."""
        self._register(False)
        if self.request.channel is not None:
            self.request.channel.transport.loseConnection()


class _PacedSocket(_Producer):
    """A producer of the connection, in the place of the HTTP request that it began as."""

    def __init__(self, send: Send, protocol: Any) -> None:
        super().__init__(send)
        self.protocol = protocol

    async def __call__(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            self._register()
        if message["type"] == "websocket.close":
            # After one second Daphne would cut the connection, and with it what a slow client has not read yet.
            self.protocol.closeHandshakeTimeout = CLOSE_SECONDS
        await self.may_go_on.wait()
        await self.send(message)

    def _register(self) -> None:
        transport = self.protocol.transport
        if not self.is_registered and transport is not None and transport.connected:
            self.is_registered = True
            transport.unregisterProducer()
            transport.registerProducer(self, True)
