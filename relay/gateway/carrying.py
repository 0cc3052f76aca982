"""Carrying a call whose two ends speak the same language: bytes go on as they come, in both directions.

A hash of what was received equals a hash of what was sent. Nothing is gathered: each piece of a reply is passed on as
soon as it is there, and the journal is given the same bytes beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from relay.errors import Cut
from relay.gateway import headers as heads
from relay.gateway.bodies import with_value
from relay.gateway.calls import Call
from relay.gateway.client import Client
from relay.gateway.dialing import Reply, Request, dial
from relay.gateway.recording import Recording
from relay.gateway.refusals import Refusal
from relay.gateway.routes import Upstream
from relay.gateway.telling import our_headers
from relay.providers.endpoints import Endpoint

ANTHROPIC_VERSION = "anthropic-version"


async def carry(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    reply = await dial(call, upstreams, lambda upstream, endpoint: request(call, upstream, endpoint))
    if reply.upstream is not upstreams[0]:
        recording.answered_by(reply.upstream)
    await pass_back(call, reply, client, recording)


async def pass_back(call: Call, reply: Reply, client: Client, recording: Recording) -> None:
    try:
        if 300 <= reply.status < 400:
            # Whoever followed it would show our caller's key to a stranger.
            recording.end("upstream_error", **_told(reply))
            raise Refusal("The upstream sends us to another address: check its base URL.", "server", status=502)
        await client.begin(reply.status, _headers(call, reply), keepalive=_keepalive(reply))
        await _pass_on(reply, client, recording)
    except Cut as cut:
        # The caller must see that it is not whole: the connection ends without its proper end.
        recording.end("timeout" if cut.kind == "timeout" else "upstream_cut", **_told(reply), error=cut.message)
        client.cut()
    else:
        done = "client_gone" if client.is_gone else "done"
        recording.end(done if reply.status < 400 else "upstream_error", **_told(reply))
    finally:
        reply.response.close() if not client.is_told_all else reply.response.release()


async def _pass_on(reply: Reply, client: Client, recording: Recording) -> None:
    content = reply.response.content
    chunk = reply.first or await reply.next()
    while chunk:
        recording.reply(chunk)
        if content.at_eof():
            break
        await client.write(chunk)
        chunk = await reply.next()
    await client.write(chunk, is_last=True)


def request(call: Call, upstream: Upstream, endpoint: Endpoint) -> Request:
    """The caller's own, but for the operator's key and, where a route says so, the model's name."""
    address, body = call.address, call.body
    if upstream.model and upstream.model != call.model:
        address = address.with_model(upstream.model)
        body = body if address.model else with_value(call.told, "model", upstream.model)
    url = endpoint.url(address.below(endpoint.dialect), model=upstream.model)
    if call.query:
        url += ("&" if "?" in url else "?") + call.query
    given = endpoint.request_headers(endpoint.switches)
    if ANTHROPIC_VERSION in call.headers and ANTHROPIC_VERSION not in endpoint.headers:
        given.pop(ANTHROPIC_VERSION, None)
    passed = heads.sent(call.pairs, given.items())
    if body is not call.body or call.is_changed:
        passed.popall("content-encoding", None)
    return Request(url=url, headers=passed, body=body)


def _headers(call: Call, reply: Reply) -> list[tuple[bytes, bytes]]:
    passed = heads.returned(reply.response.raw_headers)
    if reply.is_stream:
        # Whatever length was told, our comments would make it wrong; and no proxy is to gather a stream.
        passed = [pair for pair in passed if pair[0] != b"content-length"] + [(b"x-accel-buffering", b"no")]
    return passed + our_headers(call)


def _keepalive(reply: Reply) -> float:
    is_plain = "content-encoding" not in reply.response.headers
    return settings.PARLEY_RELAY_KEEPALIVE_SECONDS if reply.is_stream and is_plain else 0


def _told(reply: Reply) -> dict[str, Any]:
    return {
        "status": reply.status,
        "headers": heads.kept(reply.response.raw_headers),
        "provider": reply.upstream.provider.name,
    }
