"""Forwarding of calls whose client and upstream speak the same dialect, byte for byte.

A hash of what was received equals a hash of what was sent. Nothing is gathered: each piece of a reply is passed on as
soon as it is there, and the journal is given the same bytes beside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from history.dialects import DIALECTS, Switches
from relay.errors import Cut
from relay.gateway.call import headers as heads
from relay.gateway.call.bodies import Unreadable, with_model, with_model_of_path
from relay.gateway.call.calls import Call
from relay.gateway.call.client import COMMENT, EMPTY_LINE, Client
from relay.gateway.call.errors import UNREADABLE, Refusal, unreadable_reply
from relay.gateway.call.response_headers import our_headers
from relay.gateway.recording import Recording
from relay.gateway.routing.routes import Upstream
from relay.gateway.upstream.dialing import Reply, dial
from relay.gateway.upstream.endings import ReplyEnd
from relay.providers.endpoints import Endpoint
from relay.providers.raw_http import RawRequest

# The one word among the redirects that is none: what the caller has is still right.
UNCHANGED = 304
# They are for what we write ourselves; what the caller wrote is written as the vendor wants it.
NO_SWITCHES = Switches()


async def carry(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    reply = await dial(call, upstreams, request)
    if reply.upstream is not upstreams[0]:
        recording.answered_by(reply.upstream)
    await pass_back(call, reply, client, recording)


async def pass_back(call: Call, reply: Reply, client: Client, recording: Recording) -> None:
    end = ReplyEnd(call, reply, call.address.dialect)
    if encoding := reply.response.headers.get("content-encoding"):
        recording.compressed(encoding)
        end.unpack(encoding)
    try:
        if 300 <= reply.status < 400 and reply.status != UNCHANGED:
            # Whoever followed it would show our caller's key to a stranger.
            await recording.end("upstream_error", **_told(reply))
            raise Refusal("The upstream sends us to another address: check its base URL.", "server", status=502)
        if call.address.kind == "chat" and reply.status < 300 and (problem := await reply.problem()):
            if reply.first:
                recording.reply(reply.first)
            await recording.end(UNREADABLE, **_told(reply), error=problem)
            raise unreadable_reply(problem)
        headers, keepalive = heads.returned(reply.response.raw_headers), 0.0
        if reply.is_stream:
            headers, keepalive = _of_stream(headers, reply)
        sign = COMMENT if call.address.api.allows_comments else EMPTY_LINE
        await client.begin(reply.status, headers + our_headers(call), keepalive=keepalive, sign=sign)
        await _pass_on(reply, client, recording, end)
    except asyncio.CancelledError:
        if end.is_delivered:  # clients hang up as soon as they have read the final event
            await recording.end("done", **_told(reply))
        raise
    except Cut as cut:
        # The caller must see that it is not whole: the connection ends without its proper end.
        await recording.end("timeout" if cut.kind == "timeout" else "upstream_cut", **_told(reply), error=cut.message)
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
        recording.reply(chunk)
        end.read(chunk)
        if content.at_eof():
            break
        await client.write(chunk)
        end.note_delivery(client)
        chunk = await end.next(reply)
    done = "done" if end.is_delivered or not client.is_gone else "client_gone"
    await recording.end(done if reply.status < 400 else "upstream_error", **_told(reply))
    await client.write(chunk, is_last=True)


def request(call: Call, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
    """The caller's own, but for the operator's key and, where a route says so, the model's name."""
    address, body = call.address, call.body
    if upstream.model and upstream.model != call.model:
        address = address.with_model(upstream.model)
        body = _renamed(call, upstream.model)
    url = endpoint.url(address.path_below(endpoint.dialect), model=upstream.model)
    if call.query:
        url += ("&" if "?" in url else "?") + call.query
    given = endpoint.request_headers(NO_SWITCHES)
    for name in DIALECTS[endpoint.dialect].HTTP_API.default_headers:
        if name in call.headers and name not in endpoint.headers:
            given.pop(name, None)
    passed = heads.sent(call.wire, given.items(), has_connection="connection" in call.headers)
    if body is not call.body or call.is_changed:
        passed.popall("content-encoding", None)
    return RawRequest(url=url, headers=passed, body=body)


def _renamed(call: Call, model: str) -> bytes:
    if not call.address.model:
        try:
            return with_model(call.told, model)
        except Unreadable as error:
            raise Refusal(f"The request cannot be read: {error}.") from None
    if call.address.kind == "chat":
        return call.body
    renamed = with_model_of_path(call.told, model, instead_of=call.model)
    return call.body if renamed == call.told else renamed


def _of_stream(headers: list[tuple[bytes, bytes]], reply: Reply) -> tuple[list[tuple[bytes, bytes]], float]:
    """Whatever length was told, our comments would make it wrong; and no proxy is to gather a stream."""
    passed = [pair for pair in headers if pair[0] != b"content-length"] + [(b"x-accel-buffering", b"no")]
    is_plain = "content-encoding" not in reply.response.headers
    return passed, settings.PARLEY_RELAY_KEEPALIVE_SECONDS if is_plain else 0


def _told(reply: Reply) -> dict[str, Any]:
    return {
        "status": reply.status,
        "headers": heads.kept(reply.response.raw_headers),
        "provider": reply.upstream.provider.name,
    }
