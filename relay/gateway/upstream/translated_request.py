"""The request of a translated call: decoded into entries once, and encoded for each upstream that is tried."""

from dataclasses import replace
from functools import cached_property

from history.context.tokens import estimate_context
from history.dialects import DIALECTS, DecodedRequest, DialectError, context_of
from history.dialects.json_access import string
from history.dialects.types import joined
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.calls import Call
from relay.gateway.call.errors import Refusal
from relay.gateway.call.headers import headers_for_upstream
from relay.gateway.references import continuations
from relay.gateway.routes import Upstream
from relay.gateway.upstream import forwarding
from relay.gateway.upstream.losses import losses_of_request
from relay.providers.base import CallNotes
from relay.providers.endpoints import Endpoint
from relay.providers.raw_http import RawRequest


class TranslatedRequest:
    def __init__(self, call: Call) -> None:
        self.call, self._notes = call, CallNotes()

    @cached_property
    def decoded(self) -> DecodedRequest:
        return _decode(self.call)

    def is_forwarded_to(self, upstream: Upstream) -> bool:
        """An earlier conversation must be encoded into the request, in any dialect."""
        return upstream.is_native(self.call.address.dialect) and self.call.earlier is None

    def make(self, call: Call, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
        if self.is_forwarded_to(upstream):
            return forwarding.make_request(call, upstream, endpoint)
        return _encode(self.decoded, upstream, endpoint, self._notes)

    def losses(self) -> dict[str, None]:
        return dict.fromkeys(losses_of_request(self.decoded, self._notes))


def estimate_tokens(call: Call) -> int:
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
