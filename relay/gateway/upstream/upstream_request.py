"""The request of a call as each upstream gets it: the caller's bytes, or translated into the upstream's dialect."""

from dataclasses import replace
from functools import cached_property

from history.context.tokens import estimate_context
from history.dialects import DIALECTS, DecodedRequest, DialectError, Switches, context_of
from history.dialects.json_access import string
from history.dialects.types import join_texts
from relay.gateway.call import logins
from relay.gateway.call.bodies import parse_object
from relay.gateway.call.calls import Call
from relay.gateway.call.errors import Refusal
from relay.gateway.call.headers import headers_for_upstream
from relay.gateway.call.json_scanner import Unreadable, with_model, with_model_of_path
from relay.gateway.references import continuations
from relay.gateway.routes import Upstream
from relay.gateway.upstream.translation_losses import losses_of_request
from relay.providers.base import CallNotes
from relay.providers.connections import RawRequest
from relay.providers.endpoints import Endpoint

NO_SWITCHES = Switches()  # switches are for requests that Parley encodes itself


class UpstreamRequest:
    """`decoded` once, when the first upstream of another dialect is called; encoded for each that is tried."""

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
            return _forwarded(self.call, upstream, endpoint)
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

    def estimate_tokens(self) -> int:
        request = self.decoded
        return estimate_context(context_of(request).entries, system=request.system, tools=request.tools)


def _forwarded(call: Call, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
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
