"""The gateway: a bare ASGI application for /v1 and /v1beta, mounted in front of Django.

The steps of a call in order: authenticate, read the body, route, write to the journal, call the upstream, pass back the
reply. An error before the first byte of the reply is written in the dialect of the caller; a later one into the stream.
"""

import asyncio
import logging
from uuid import UUID

from django.conf import settings

from history.access.key_cache import ApiKeyError
from history.answers.events import ErrorKind
from history.dialects import DIALECTS
from relay.errors import ProviderError
from relay.gateway import arrivals, models_endpoint, rate_limits, routes
from relay.gateway.call import bodies, calls, cancellation, errors, logins, session_ids
from relay.gateway.call.authentication import authenticate, find_key, without_key
from relay.gateway.call.calls import Address, Call, new_exchange_id
from relay.gateway.call.cancellation import CallCancellation
from relay.gateway.call.client import Client
from relay.gateway.call.decompression import READ_HERE, UnknownEncoding, decompress
from relay.gateway.call.errors import LONGEST_NAME, Refusal
from relay.gateway.call.headers import RequestHeaders, decode_headers
from relay.gateway.call.json_scanner import NotAnObject, Unreadable, without_field
from relay.gateway.recording import Recording, mode_of
from relay.gateway.references import continuations, ownership
from relay.gateway.routes import Upstream
from relay.gateway.upstream.translation import call_upstream, count_tokens
from relay.runtime.asgi import Receive, Scope, Send
from relay.runtime.event_loop import parse_apart

logger = logging.getLogger(__name__)

MOUNTED = ("/v1/", "/v1beta/")
MOST_REFERENCES = 2_000
NO_SOCKETS = b"The relay has no websockets. Use POST.\n"


def serves(path: str) -> bool:
    return path.startswith(MOUNTED)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    client = Client(receive, send)
    decoded, exchange = decode_headers(scope["headers"]), new_exchange_id()
    try:
        await _answer(scope, decoded, receive, client, exchange)
    except Refusal as refusal:
        await _refuse(scope, dict(decoded.pairs), client, exchange, refusal)
    except bodies.ClientGone:
        pass
    except Exception:  # callers get every error in a form that they can read
        logger.exception("A call to %s failed in the relay.", scope["path"])
        if client.has_begun:
            client.cut()
        else:
            await _refuse(
                scope,
                dict(decoded.pairs),
                client,
                exchange,
                Refusal("The relay failed. The server log has the details.", "server"),
            )
    finally:
        client.close()


async def refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Clients that try a websocket first call by POST at once after a 426; after a 403 or 404 they try seven times."""
    await receive()
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close"})  # the server answers 403
        return
    headers = [
        (b"content-type", b"text/plain"),
        (b"upgrade", b"http/1.1"),
        (b"content-length", b"%d" % len(NO_SOCKETS)),
    ]
    await send({"type": "websocket.http.response.start", "status": 426, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": NO_SOCKETS})


async def _answer(scope: Scope, decoded: RequestHeaders, receive: Receive, client: Client, exchange: UUID) -> None:
    headers, query = dict(decoded.pairs), scope["query_string"].decode("latin-1")
    try:
        key_header, secret = find_key(headers, query)
        key = await authenticate(secret)
    except ApiKeyError as error:
        raise errors.key_refusal(error, is_beside_login=logins.has_vendor_credential(headers)) from None
    method, path = scope["method"], scope["path"]
    login = logins.read_login(headers)
    arrival = arrivals.note_arrival(key, key_header, login, headers)
    model_list = _address_of_model_list(method, path, query) if login is not None else None
    if (
        model_list is None
        and method == "GET"
        and await models_endpoint.answer_get(path, headers, key, client, exchange, arrival=arrival)
    ):
        return
    raw = scope.get("raw_path") or b""
    call = Call(
        loop=client.loop,
        exchange=exchange,
        name=str(exchange),
        method=method,
        path=path,
        query=without_key(query),
        pairs=decoded.pairs,
        wire_headers=decoded.wire,
        headers=headers,
        peer=(scope.get("client") or ("",))[0],
        key=key,
        login=login,
        is_model_list=model_list is not None,
        address=model_list or calls.find_address(method, path, raw) or _listed_address(method, path, raw, headers),
    )
    cancellation.check_not_stopping()
    async with rate_limits.Admission(call):
        await _read_body(call, receive)
        await _send_on(call, client)


def _address_of_model_list(method: str, path: str, query: str) -> Address | None:
    """The list of models that a plan gives its own clients, who read more of it than others."""
    if method != "GET" or path != "/v1/models":
        return None
    wanting = (name for name, one in DIALECTS.items() if one.HTTP_API.wants_own_model_list(query))
    dialect = next((name for name in wanting if routes.find_plan(name) is not None), "")
    return Address(dialect=dialect, kind="other", path=path) if dialect else None


def _listed_address(method: str, path: str, raw: bytes, headers: dict[str, str]) -> Address:
    dialect = calls.guess_dialect(path, headers)
    if calls.has_dot_segments(path) or routes.find_listed_provider(method, path) is None:
        raise errors.not_found(f"No such endpoint: {method} {path[:LONGEST_NAME]}.", dialect)
    return Address(dialect=dialect, kind="other", path=calls.quote_path(path, raw))


async def _read_body(call: Call, receive: Receive) -> None:
    limit, length = settings.PARLEY_RELAY_BODY_MB * 1024 * 1024, call.headers.get("content-length") or "0"
    if not length.isdecimal():
        raise Refusal("The header content-length is not valid.")
    try:
        if len(length) > 18 or int(length) > limit:  # `int` refuses thousands of digits
            raise bodies.TooLarge
        call.body = call.wire_body = await bodies.read_body(receive, limit=limit)
        if encoding := call.headers.get("content-encoding", ""):
            # In a thread: a few bytes may become many, and all streams would wait meanwhile.
            call.body = await asyncio.to_thread(decompress, call.wire_body, encoding, limit=limit)
        if call.address.kind != "other":
            await _peek(call)
            await ownership.check_references(call)
    except bodies.TooLarge:
        text = f"The request is too large. The limit is {settings.PARLEY_RELAY_BODY_MB} MB."
        raise Refusal(text, "too_large") from None
    except UnknownEncoding as error:
        text = f"Content encoding {error} is not supported. Use {', '.join(READ_HERE)}, or none."
        raise Refusal(text, status=415, headers=(("accept-encoding", ", ".join(READ_HERE)),)) from None
    except NotAnObject:
        raise Refusal(await parse_apart(len(call.body), bodies.explain_missing_model, call.body)) from None
    except Unreadable as error:
        raise Refusal(f"The request cannot be read: {error}.") from None


async def _peek(call: Call) -> None:
    size = len(call.body)
    call.set_fields(*await parse_apart(size, bodies.peek_body, call.body, call.address.dialect))
    if len(call.references) > MOST_REFERENCES:
        raise Unreadable(f"it refers to more than {MOST_REFERENCES} files and items")
    call.recording = mode_of(call.key)
    call.session_name = session_ids.read_session(call.headers, call.fields, key=call.key.id)
    if session_ids.BODY_FIELD in call.fields:
        call.body = call.wire_body = await parse_apart(size, without_field, call.body, session_ids.BODY_FIELD)
        call.has_lost_session_field = call.is_changed = True


async def _send_on(call: Call, client: Client) -> None:
    upstreams = await parse_apart(len(call.body), routes.find_upstreams, call)
    has_choice = len(upstreams) > 1
    if has_choice:
        upstreams = _capable_upstreams(call, ownership.upstreams_with_answer(call, upstreams))
    if call.references:
        upstreams = await ownership.upstreams_with_references(call, upstreams)
    if ownership.continued_id(call):
        await continuations.attach_earlier(call, upstreams)
    if call.earlier is not None:  # a conversation of ours can only be sent in a translated request
        upstreams = [one for one in upstreams if not one.is_plan] or upstreams
    await rate_limits.reserve(call, next((one for one in upstreams if not one.is_plan), upstreams[0]))
    recording = Recording(call)
    recording.accept(upstreams[0])
    cancelling = CallCancellation(client.loop, call.key.pk)
    client.watch(cancelling.handle_disconnect)
    try:
        continuations.check_continuation(call, upstreams)
        is_forwarded = call.earlier is None and all(one.is_native(call.address.dialect) for one in upstreams)
        if is_forwarded or call.address.kind == "chat":
            await call_upstream(call, upstreams, client, recording)
        else:
            await count_tokens(call, client, recording)
    except ProviderError as error:
        await recording.end("timeout" if error.kind == "timeout" else "upstream_error", error=error.message)
        retry = (("retry-after", f"{error.retry_after:.0f}"),) if error.retry_after else ()
        raise Refusal(error.message, error.kind, headers=(*retry, *call.record_headers)) from None
    except Refusal as refusal:
        await recording.end("refused", error=refusal.message)
        refusal.headers += call.record_headers
        raise
    except asyncio.CancelledError:
        reason = cancelling.reason
        await recording.end("stopped" if reason or not client.is_gone else "client_gone", error=reason)
        if not cancelling.uncancel():
            raise
        if reason and not client.has_begun:
            kind: ErrorKind = "authentication" if reason == cancellation.REVOKED else "overloaded"
            if kind == "authentication" and logins.has_vendor_credential(call.headers):
                kind = "permission"
            raise Refusal(reason, kind, headers=call.record_headers) from None
        if reason:
            client.cut()
    finally:
        cancelling.close()
        await recording.end("client_gone" if client.is_gone else "server_lost")
        if recording.copy is not None:
            provider = recording.upstream.provider.name if has_choice and recording.upstream else ""
            ownership.note_issued(call, recording.beginning, provider)
        if recording.issued_ids is not None:
            scanner = recording.issued_ids
            ownership.remember_issued(call, await parse_apart(scanner.unread_size, scanner.end))


def _capable_upstreams(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """What cannot be translated is for upstreams that speak the caller's dialect, if there are any."""
    if call.address.kind == "chat" and not ownership.continued_id(call):
        return upstreams
    if continuations.is_ours(ownership.previous_response(call)):
        return upstreams
    return [upstream for upstream in upstreams if upstream.is_native(call.address.dialect)] or upstreams


async def _refuse(scope: Scope, headers: dict[str, str], client: Client, exchange: UUID, refusal: Refusal) -> None:
    address = calls.find_address(scope["method"], scope["path"])
    status, body = refusal.encode(address.dialect if address else calls.guess_dialect(scope["path"], headers))
    own = [(name.encode(), value.encode()) for name, value in refusal.headers]
    await client.send_json(status, body, [(b"x-parley-exchange-id", str(exchange).encode()), *own])
