"""Forwarding of calls whose client and upstream speak the same dialect, byte for byte.

Each piece of a reply is passed on as soon as it is there, and the journal gets the same bytes. A reply whose final
event was delivered is complete, no matter which side closes the connection and when.
"""

from __future__ import annotations

import asyncio

from django.conf import settings

from history.dialects import DIALECTS, Switches
from history.dialects.sse import FinalEventScanner, Finality
from relay.errors import Cut
from relay.gateway.call import logins
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.call.decompression import PlainReply
from relay.gateway.call.errors import UNREADABLE, Refusal, unreadable_reply
from relay.gateway.call.headers import headers_for_client, headers_for_upstream
from relay.gateway.call.json_scanner import Unreadable, with_model, with_model_of_path
from relay.gateway.recording import Recording
from relay.gateway.routes import Upstream
from relay.gateway.upstream.upstream_calls import Reply
from relay.providers.connections import RawRequest
from relay.providers.endpoints import Endpoint

NOT_MODIFIED = 304
NO_SWITCHES = Switches()  # switches are for requests that Parley encodes itself
# How long to wait for the upstream to close after its final event, so that its connection can be used again.
CLOSING_SECONDS = 0.25
REDIRECTED = "The provider redirects to another address. Check its base URL."


def make_request(call: Call, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
    """The caller's request with the operator's key and, if a route says so, another model."""
    address, body = call.address, call.wire_body
    if upstream.model and upstream.model != call.model:
        address = address.with_model(upstream.model)
        body = _with_model(call, upstream.model)
    api = DIALECTS[endpoint.dialect].HTTP_API
    # Some vendors' base URLs end with the version.
    url = endpoint.url(address.path.removeprefix(api.version_in_base_url), model=upstream.model)
    if call.query:
        url += ("&" if "?" in url else "?") + call.query
    own = endpoint.request_headers(NO_SWITCHES) | logins.headers_for(call.login, endpoint, url)
    for name in api.default_headers:
        if name in call.headers and name not in endpoint.headers:
            own.pop(name, None)
    headers = headers_for_upstream(call.wire_headers, own, has_connection="connection" in call.headers)
    if body is not call.wire_body or call.is_changed:
        headers.popall("content-encoding", None)
    return RawRequest(url=url, headers=headers, body=body)


def _with_model(call: Call, model: str) -> bytes:
    if not call.address.model:
        try:
            return with_model(call.body, model)
        except Unreadable as error:
            raise Refusal(f"The request cannot be read: {error}.") from None
    if call.address.kind == "chat":
        return call.wire_body
    renamed = with_model_of_path(call.body, model, instead_of=call.model)
    return call.wire_body if renamed == call.body else renamed


async def pass_back(call: Call, reply: Reply, client: Client, recording: Recording) -> None:
    encoding = reply.response.headers.get("content-encoding", "")
    end = ReplyEnd(call, reply, call.address.dialect, encoding)
    if encoding:
        recording.set_encoding(encoding)
    try:
        if 300 <= reply.status < 400 and reply.status != NOT_MODIFIED:
            # A client that follows it would send our caller's key to another server.
            await reply.record_end(recording, "upstream_error")
            raise Refusal(REDIRECTED, "server", status=502)
        if call.address.kind == "chat" and reply.status < 300 and (problem := await reply.problem()):
            if reply.first:
                recording.add(reply.first)
            await reply.record_end(recording, UNREADABLE, error=problem)
            raise unreadable_reply(problem)
        headers, keepalive = headers_for_client(reply.response.raw_headers), 0.0
        if reply.is_stream:
            # Without a length, which our comments would make wrong; proxies must not buffer a stream.
            headers = [pair for pair in headers if pair[0] != b"content-length"] + [(b"x-accel-buffering", b"no")]
            keepalive = 0.0 if encoding else settings.PARLEY_RELAY_KEEPALIVE_SECONDS
        allows_comments = call.address.api.allows_comments
        headers += call.response_headers
        await client.begin(reply.status, headers, keepalive=keepalive, allows_comments=allows_comments)
        await _pass_on(reply, client, recording, end)
    except asyncio.CancelledError:
        if end.is_delivered:  # clients hang up as soon as they have read the final event
            await reply.record_end(recording, "done")
        raise
    except Cut as cut:
        # The client must see that the reply is incomplete: the connection ends without its proper end.
        await reply.record_end(recording, "timeout" if cut.kind == "timeout" else "upstream_cut", error=cut.message)
        if not client.has_begun:
            raise Refusal(cut.message, cut.kind) from None
        client.cut()
    finally:
        reply.response.close()


async def _pass_on(reply: Reply, client: Client, recording: Recording, end: ReplyEnd) -> None:
    """The end is recorded before the last bytes are sent: a client that has all of a reply finds all of it recorded."""
    content = reply.response.content
    chunk = reply.first or await reply.next()
    while chunk:
        recording.add(chunk)
        end.read(chunk)
        if content.at_eof():
            break
        await client.write(chunk)
        end.note_delivery(client)
        chunk = await end.next(reply)
    done = "done" if end.is_delivered or not client.is_gone else "client_gone"
    await reply.record_end(recording, done if reply.status < 400 else "upstream_error")
    await client.write(chunk, is_last=True)


class ReplyEnd:
    """Reads a reply for its final event. A whole JSON reply has none: it ends with its connection."""

    def __init__(self, call: Call, reply: Reply, dialect: str, encoding: str = "") -> None:
        self.is_delivered = False
        self._over_at: float | None = None
        self._plain = PlainReply(encoding)
        self._scanner: FinalEventScanner | None = None
        # Some servers stream without the right content type; only JSON is certainly not a stream.
        is_stream = reply.is_stream or (call.wants_stream and "json" not in reply.response.content_type)
        if call.address.kind == "chat" and is_stream and reply.status < 400:
            self._scanner = DIALECTS[dialect].final_event_scanner()

    def read(self, chunk: bytes) -> None:
        if self._scanner is not None:
            for piece in self._plain.pieces(chunk):
                self._scanner.feed(piece)

    @property
    def is_complete(self) -> bool:
        return self._state >= Finality.COMPLETE

    @property
    def _state(self) -> Finality:
        return Finality.OPEN if self._scanner is None or self._plain.is_unreadable else self._scanner.state

    def note_delivery(self, client: Client) -> None:
        """All that was read so far has been passed to the client."""
        if not client.is_gone:
            self.is_delivered = self.is_complete
        elif not self.is_complete:
            self.is_delivered = False

    async def next(self, reply: Reply) -> bytes:
        """The next bytes of the reply. After the final event errors of the connection do not matter."""
        if not self.is_complete:
            return await reply.next()
        try:
            if self._state is not Finality.OVER:
                return await reply.next()
            if self._over_at is None:
                self._over_at = reply.loop.time()
            async with asyncio.timeout_at(self._over_at + CLOSING_SECONDS):
                return await reply.next()
        except (TimeoutError, Cut):
            return b""
