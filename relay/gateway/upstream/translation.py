"""Translation of calls between dialects: the first upstream that answers, and its reply in the caller's dialect.

The request is decoded into entries once, and encoded for each upstream that is tried. The upstream is always asked for
a stream: so a caller that wants none still gets what there was when it breaks off.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from history.context.tokens import estimate_context
from history.dialects import DIALECTS, DecodedRequest, DialectError, context_of
from history.dialects.json_access import as_bytes, string
from history.dialects.types import join_texts
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.call.errors import Refusal
from relay.gateway.call.headers import headers_for_upstream
from relay.gateway.recording import Recording
from relay.gateway.references import continuations
from relay.gateway.routes import Upstream
from relay.gateway.upstream import forwarding
from relay.gateway.upstream.translated_reply import TranslatedReply
from relay.gateway.upstream.translation_losses import losses_of_request
from relay.gateway.upstream.upstream_calls import call_first_available
from relay.providers.base import CallNotes
from relay.providers.connections import RawRequest
from relay.providers.endpoints import Endpoint
from relay.runtime.event_loop import parse_apart


async def call_upstream(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    """Call the first upstream that answers, and pass its reply back: unchanged if it speaks the caller's dialect."""
    request = TranslatedRequest(call)
    reply = await call_first_available(call, upstreams, request.make)
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
    tokens = await parse_apart(len(call.body), _estimate_tokens, call)
    await client.send_json(200, as_bytes(call.address.api.encode_token_count(tokens)), call.response_headers)
    await recording.end("done", status=200, estimated=True)


class TranslatedRequest:
    def __init__(self, call: Call) -> None:
        self.call, self._notes = call, CallNotes()

    @cached_property
    def decoded(self) -> DecodedRequest:
        call = self.call
        try:
            body = parse_object(call.body)
            request = DIALECTS[call.address.dialect].decode_request(body)
        except (DialectError, ValueError) as error:
            raise Refusal(f"The request cannot be read: {error}.") from None
        call.lasting_system = request.system.removeprefix(string(body.get("instructions"))).strip()
        if call.earlier is not None:
            call.lasting_system = join_texts((call.earlier.system, call.lasting_system))
            request = continuations.with_earlier(request, call.earlier)
        return replace(request, model=call.model, options=replace(request.options, stream=True))

    def is_forwarded_to(self, upstream: Upstream) -> bool:
        """An earlier conversation must be encoded into the request, in any dialect."""
        return upstream.is_native(self.call.address.dialect) and self.call.earlier is None

    def make(self, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
        if self.is_forwarded_to(upstream):
            return forwarding.make_request(self.call, upstream, endpoint)
        if upstream.is_plan:
            raise Refusal("A call with a subscription login is never translated. Send the whole conversation.")
        options = replace(self.decoded.options, model=upstream.model, media=self.decoded.blobs.__getitem__)
        encoded = upstream.provider.request_for(context_of(self.decoded), options, self._notes)
        own = endpoint.request_headers(encoded.options.switches)
        plain = [("content-type", "application/json"), ("accept", "text/event-stream, application/json")]
        url = endpoint.url(encoded.path, model=upstream.model)
        return RawRequest(url=url, headers=headers_for_upstream(plain, own), body=encoded.body)

    def losses(self) -> dict[str, None]:
        return dict.fromkeys(losses_of_request(self.decoded, self._notes))


def _estimate_tokens(call: Call) -> int:
    request = TranslatedRequest(call).decoded
    return estimate_context(context_of(request).entries, system=request.system, tools=request.tools)
