"""Daphne with request bodies that are streamed to the application, and a deadline for headers.

Daphne reads a whole body of any size before it calls the application, and Twisted parses forms on the event loop: 16 MB
of small parts stopped every other request for 32 seconds. Here the application starts when the headers are there, so
its limits (`project.server.bodies`) hold before anything is read, and reading pauses while it is behind.

Import it only to serve: Daphne installs Twisted's reactor. Names in camel case are Twisted's.
"""

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Any

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server as DaphneServer
from daphne.ws_protocol import ConnectionDeny, WebSocketProtocol
from twisted.internet.defer import Deferred
from twisted.web.http import HTTPChannel

from project.server.limits import HEADER_SECONDS, FrameMeter

# Reading pauses when the application has not taken this much of a body.
MOST_WAITING = 256 * 1024
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

_Channel: Any = HTTPChannel  # Twisted's own has no types
_Denied: Any = ConnectionDeny


class Inbox:
    """The body of one request as the application receives it. Takes the place of Daphne's queue."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.data = bytearray()
        self.is_complete = self.is_delivered = self.is_gone = self.is_paused = False
        self.changed = asyncio.Event()

    def add(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > MOST_WAITING and not self.is_paused:
            self.is_paused = True
            self.request.transport.pauseProducing()
        self.changed.set()

    def complete(self) -> None:
        self.is_complete = True
        self.changed.set()

    def put_nowait(self, message: Any) -> None:
        """Messages of Daphne: an empty body if none was announced, and the disconnect of the client."""
        if message["type"] == "http.disconnect":
            self.is_gone = True
            self.changed.set()
        elif not self.request.is_streamed:
            self.data += message["body"]
            if not message["more_body"]:
                self.complete()

    async def receive(self) -> dict[str, Any]:
        while not (self.data or self.is_gone or (self.is_complete and not self.is_delivered)):
            self.request.ask_for_body()
            self.changed.clear()
            await self.changed.wait()
        if self.is_delivered or (self.is_gone and not self.is_complete):
            return {"type": "http.disconnect"}
        body, self.data = bytes(self.data), bytearray()
        self.is_delivered = self.is_complete
        if self.is_paused and not self.is_gone:
            self.is_paused = False
            self.request.transport.resumeProducing()
        return {"type": "http.request", "body": body, "more_body": not self.is_complete}


class Request(WebRequest):  # type: ignore[misc]
    """Starts the application when the headers are there."""

    is_streamed = is_whole = expects_continue = False

    def __init__(self, channel: Any, queued: Any = None) -> None:
        super().__init__(channel, parsePOSTFormSubmission=False)

    def gotLength(self, length: int | None) -> None:  # noqa: N802
        super().gotLength(0)  # nothing is gathered in a file
        if length != 0:
            self.is_streamed = True
            self.channel.begin_body(self)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802
        if isinstance(self.application_queue, Inbox) and not self.finished:
            self.application_queue.add(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        if not self.is_streamed:
            super().requestReceived(command, path, version)
            return
        self.is_whole = True
        if isinstance(self.application_queue, Inbox):
            self.application_queue.complete()

    def begin(self, command: bytes, path: bytes, version: bytes) -> None:
        """Start the application before the body arrives."""
        super().requestReceived(command, path, version)

    def ask_for_body(self) -> None:
        if self.expects_continue and not self._response_started and self.channel is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.expects_continue = False

    def finish(self) -> None:
        if self.is_streamed and not self.is_whole and self.channel is not None:
            self.channel.give_up()
        super().finish()


class Channel(_Channel):  # type: ignore[misc]
    """One connection. Headers have a deadline, and bytes after an unread body are not a request."""

    _late: Any = None
    _is_closed = False

    def connectionMade(self) -> None:  # noqa: N802
        super().connectionMade()
        self._expect_headers()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        if self._is_closed:
            return
        if not self.requests and self._late is None:
            self._expect_headers()
        super().dataReceived(data)

    def allHeadersReceived(self) -> None:  # noqa: N802
        self._stop_waiting()
        request = self.requests[-1]
        expected = request.requestHeaders.getRawHeaders(b"Expect") or [b""]
        request.expects_continue = expected[0].lower() == b"100-continue" and self._version == b"HTTP/1.1"
        request.requestHeaders.removeHeader(b"Expect")  # Twisted would answer it at once
        super().allHeadersReceived()

    def begin_body(self, request: Any) -> None:
        if request.requestHeaders.hasHeader(b"Upgrade"):  # a handshake has no body
            self.give_up()
            self._respondToBadRequestAndDisconnect()
            return
        # `project.server.bodies` limits the time. Twisted would end the connection while the application is busy.
        self._savedTimeOut = self.setTimeout(None)
        request.begin(self._command, self._path, self._version)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802
        if not self._is_closed:
            super().rawDataReceived(data)

    def allContentReceived(self) -> None:  # noqa: N802
        if not self._is_closed:
            super().allContentReceived()

    def give_up(self) -> None:
        """Close the connection after the answer: the rest of an unread body would look like a request."""
        self.persistent, self._is_closed = 0, True

    def connectionLost(self, reason: Any) -> None:  # noqa: N802
        self._stop_waiting()
        super().connectionLost(reason)

    def _expect_headers(self) -> None:
        self._late = self.callLater(HEADER_SECONDS, self._headers_are_late)

    def _stop_waiting(self) -> None:
        late, self._late = self._late, None
        if late is not None and late.active():
            late.cancel()

    def _headers_are_late(self) -> None:
        self._late = None
        if self.requests:
            self.transport.write(TIMED_OUT)
        self._is_closed = True
        self.timeoutConnection()


class Factory(HTTPFactory):  # type: ignore[misc]
    protocol = Channel

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802
        channel = super().buildProtocol(addr)
        channel.requestFactory = Request
        return channel


class Socket(WebSocketProtocol):  # type: ignore[misc]
    """Limits size and number of client messages. Autobahn would apply the size limit to ours too."""

    maxMessagePayloadSize: int  # noqa: N815
    refused_with = 0

    def serverSend(self, content: Any, binary: bool = False) -> None:  # noqa: N802
        limit, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().serverSend(content, binary)
        finally:
            self.maxMessagePayloadSize = limit

    def handle_reply(self, message: Any) -> None:
        """Daphne answers every refused handshake with 403. Here the application may name another status."""
        if message["type"] == "websocket.http.response.start":
            self.refused_with = message["status"]
        elif message["type"] == "websocket.http.response.body":
            self.serverReject()
        else:
            super().handle_reply(message)

    def serverReject(self) -> None:  # noqa: N802
        if self.refused_with and self.state == self.STATE_CONNECTING:
            handshake = self.__dict__.pop("handshake_deferred")
            reason = HTTPStatus(self.refused_with).phrase
            handshake.errback(_Denied(code=self.refused_with, reason=reason))
            self.server.protocol_disconnected(self)
        else:
            super().serverReject()

    def connectionMade(self) -> None:  # noqa: N802
        self.meter = FrameMeter()
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        if self.meter.allows(data):
            super().dataReceived(data)
        else:
            self.transport.abortConnection()


class Server(DaphneServer):  # type: ignore[misc]
    def __setattr__(self, name: str, value: Any) -> None:
        """Put our protocols in place of those with which Daphne's `run` makes its two factories."""
        if name == "http_factory":
            value = Factory(self)
        elif name == "ws_factory":
            value.protocol = Socket
        super().__setattr__(name, value)

    def create_application(self, protocol: Any, scope: Any) -> Any:
        """Give requests an `Inbox`. Sockets keep the queue of Daphne."""
        if not isinstance(protocol, Request):
            scope.setdefault("extensions", {"websocket.http.response": {}})
            return super().create_application(protocol, scope)
        if protocol not in self.connections:
            return None
        inbox = Inbox(protocol)
        scope.setdefault("asgi", {"version": "3.0"})
        running = self.application(scope=scope, receive=inbox.receive, send=partial(self.handle_reply, protocol))
        self.connections[protocol]["application_instance"] = asyncio.ensure_future(running)
        return inbox

    def kill_all_applications(self) -> Any:
        """Cancel what runs. Daphne's method fails for a connection whose application has not started or is done."""
        running = [details.get("application_instance") for details in self.connections.values()]
        left = [task for task in running if task is not None and not task.done()]
        for task in left:
            task.cancel()
        return Deferred.fromFuture(asyncio.gather(*left, return_exceptions=True))
