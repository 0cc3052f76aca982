"""Flow control of responses and sockets under Daphne: `send` waits for the client.

Daphne returns at once and keeps in memory what the client has not read, which may be all of a large download. Twisted
pauses a registered producer when its buffer is full, so each streamed response registers one.
"""

import asyncio
from functools import partial
from typing import Any

from relay.runtime.asgi import Message, Send

CLOSE_SECONDS = 30  # how long a client may take to read what was sent before its socket was closed


def paced(send: Send) -> Send:
    """`send`, or one that waits if the server does not."""
    request = _behind(send, "registerProducer", "channel")
    return send if request is None else _Paced(send, request)


def paced_socket(send: Send) -> Send:
    """The same for a socket: a message waits until the client has read most of the earlier ones."""
    protocol = _behind(send, "sendMessage", "transport")
    return send if protocol is None else _PacedSocket(send, protocol)


def _behind(send: Send, *attributes: str) -> Any:
    """Twisted's request or protocol: under Daphne `send` is a partial function of it. Else None."""
    arguments = send.args if isinstance(send, partial) else ()
    return next((one for one in arguments if all(hasattr(one, name) for name in attributes)), None)


class _Producer:
    """A producer of Twisted: paused when the buffer is full, resumed when it is empty."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.is_registered = False

    def pauseProducing(self) -> None:  # noqa: N802 - their names
        self.may_send.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self.may_send.set()

    stopProducing = resumeProducing  # noqa: N815


class _Paced(_Producer):
    def __init__(self, send: Send, request: Any) -> None:
        super().__init__(send)
        self.request = request

    async def __call__(self, message: Message) -> None:
        is_piece = message["type"] == "http.response.body" and bool(message.get("more_body"))
        self._register(is_piece and self.request.channel is not None)
        await self.send(message)
        if is_piece:
            await self.may_send.wait()

    def _register(self, wanted: bool) -> None:
        """Twisted requires the producer to unregister before the last piece."""
        if wanted and not self.is_registered:
            self.request.registerProducer(self, True)
        elif self.is_registered and not wanted and self.request.channel is not None:
            self.request.unregisterProducer()
        self.is_registered = wanted

    def cut(self) -> None:
        """Close the connection: an answer that broke off must not look complete, nor keep its client waiting."""
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
        await self.may_send.wait()
        await self.send(message)

    def _register(self) -> None:
        transport = self.protocol.transport
        if not self.is_registered and transport is not None and transport.connected:
            self.is_registered = True
            transport.unregisterProducer()
            transport.registerProducer(self, True)
