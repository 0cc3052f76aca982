"""Translation of calls between dialects: the request is decoded into entries and encoded for the upstream.

The upstream is always asked for a stream: so a caller that wants none still gets what there was when it breaks off.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from history.context.tokens import estimate_context
from history.dialects import DIALECTS, DecodedRequest, DialectError, context_of
from history.dialects.json_access import as_bytes, string
from history.dialects.types import joined
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.call.errors import Refusal
from relay.gateway.call.headers import headers_for_upstream
from relay.gateway.recording import Recording
from relay.gateway.references import continuations
from relay.gateway.routes import Upstream
from relay.gateway.upstream import forwarding
from relay.gateway.upstream.dialing import dial
from relay.gateway.upstream.losses import losses_of_request
from relay.gateway.upstream.translated_reply import TranslatedReply
from relay.providers.base import CallNotes
from relay.providers.endpoints import Endpoint
from relay.providers.raw_http import RawRequest
from relay.runtime.event_loop import parse_apart


async def call_upstream(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    """Call the first upstream that answers, and pass its reply back: unchanged if it speaks the caller's dialect."""
    notes, dialect = CallNotes(), call.address.dialect
    decoded = cache(lambda: _decode(call))

    def is_forwarded(upstream: Upstream) -> bool:
        """An earlier conversation must be encoded into the request, in any dialect."""
        return upstream.is_native(dialect) and call.earlier is None

    def make_request(call: Call, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
        if is_forwarded(upstream):
            return forwarding.make_request(call, upstream, endpoint)
        return _encode(decoded(), upstream, endpoint, notes)

    reply = await dial(call, upstreams, make_request)
    if reply.upstream is not upstreams[0]:
        recording.set_upstream(reply.upstream)
    if is_forwarded(reply.upstream):
        await forwarding.pass_back(call, reply, client, recording)
        return
    lost = await parse_apart(len(call.body), lambda: dict.fromkeys(losses_of_request(decoded(), notes)))
    try:
        await TranslatedReply(call, reply, client, recording, decoded(), lost).run()
    finally:
        reply.response.close()


async def count(call: Call, client: Client, recording: Recording) -> None:
    """An upstream of another dialect cannot count for this caller, so the answer is our estimate."""
    tokens = await parse_apart(len(call.body), _estimate, call)
    await client.send_json(200, as_bytes(call.address.api.encode_token_count(tokens)), call.response_headers)
    await recording.end("done", status=200, estimated=True)


def _estimate(call: Call) -> int:
    request = _decode(call)
    return estimate_context(context_of(request).entries, system=request.system, tools=request.tools)


def _decode(call: Call) -> DecodedRequest:
    try:
        body = parse_object(call.body)
        request = DIALECTS[call.address.dialect].decode_request(body)
    except (DialectError, ValueError) as error:
        raise Refusal(f"The request cannot be read: {error}.") from None
    call.lasting_system = request.system.removeprefix(string(body.get("instructions"))).strip()
    if call.earlier is not None:
        call.lasting_system = joined((call.earlier.system, call.lasting_system))
        request = continuations.with_earlier(request, call.earlier)
    return replace(request, model=call.model, options=replace(request.options, stream=True))


def _encode(request: DecodedRequest, upstream: Upstream, endpoint: Endpoint, notes: CallNotes) -> RawRequest:
    options = replace(request.options, model=upstream.model, media=request.blobs.__getitem__)
    encoded = upstream.provider.request_for(context_of(request), options, notes)
    own = endpoint.request_headers(encoded.options.switches)
    plain = [("content-type", "application/json"), ("accept", "text/event-stream, application/json")]
    url = endpoint.url(encoded.path, model=upstream.model)
    return RawRequest(url=url, headers=headers_for_upstream(plain, own), body=encoded.body)
