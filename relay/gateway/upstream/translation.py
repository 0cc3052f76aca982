"""Calls of upstreams: the first one that answers, and its reply in the caller's dialect.

The upstream is always asked for a stream: so a caller that wants none still gets what there was when it breaks off.
"""

from collections.abc import Sequence

from history.dialects.json_access import as_bytes
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.recording import Recording
from relay.gateway.routes import Upstream
from relay.gateway.upstream import forwarding
from relay.gateway.upstream.translated_reply import TranslatedReply
from relay.gateway.upstream.upstream_calls import call_first_available
from relay.gateway.upstream.upstream_request import UpstreamRequest
from relay.runtime.event_loop import parse_apart


async def call_upstream(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    """Call the first upstream that answers, and pass its reply back: unchanged if it speaks the caller's dialect."""
    request = UpstreamRequest(call)
    reply = await call_first_available(request, upstreams)
    if reply.upstream is not upstreams[0]:
        recording.set_upstream(reply.upstream)
    if request.is_forwarded_to(reply.upstream):
        await forwarding.pass_back(call, reply, client, recording)
        return
    lost = await parse_apart(call.size, request.losses)
    try:
        await TranslatedReply(call, reply, client, recording, request.decoded, lost).run()
    finally:
        reply.response.close()


async def count_tokens(call: Call, client: Client, recording: Recording) -> None:
    """An upstream of another dialect cannot count for this caller, so the answer is our estimate."""
    tokens = await parse_apart(len(call.body), UpstreamRequest(call).estimate_tokens)
    await client.send_json(200, as_bytes(call.address.api.encode_token_count(tokens)), call.response_headers)
    await recording.end("done", status=200, estimated=True)
