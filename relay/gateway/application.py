"""The gateway: a bare ASGI application for /v1 and /v1beta, mounted in front of Django.

The steps of a call in order: authenticate, read the body, route, write to the journal, call the upstream, pass back the
reply. An error before the first byte of the reply is written in the dialect of the caller; a later one into the stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from django.conf import settings

from history.access.key_cache import ApiKeyError
from history.answers.events import ErrorKind
from relay.errors import NoSuchModel, ProviderError
from relay.gateway import models_endpoint
from relay.gateway.call import addresses, authentication, bodies, body_peek, errors, revocations, session_ids, stopping
from relay.gateway.call import headers as heads
from relay.gateway.call.addresses import Address
from relay.gateway.call.calls import Call, Scope
from relay.gateway.call.client import Client
from relay.gateway.call.disconnects import CallCancellation
from relay.gateway.call.errors import NAMED, Refusal
from relay.gateway.call.ids import new_exchange_id
from relay.gateway.call.response_headers import json_headers, record_headers
from relay.gateway.limits import rate_limits
from relay.gateway.recording import Recording, mode_of
from relay.gateway.references import continuations, ownership, vendor_affinity
from relay.gateway.routing import routes
from relay.gateway.routing.routes import Upstream
from relay.gateway.upstream.forwarding import carry
from relay.gateway.upstream.translating import count, translate
from relay.runtime.parsing import parse_apart

logger = logging.getLogger(__name__)

MOUNTED = ("/v1/", "/v1beta/")
MOST_REFERENCES = 2_000


def serves(path: str) -> bool:
    return path.startswith(MOUNTED)


async def application(scope: Scope, receive: Any, send: Any) -> None:
    client = Client(receive, send)
    read, exchange = heads.read(scope["headers"]), new_exchange_id()
    try:
        await _answer(scope, read, receive, client, exchange)
    except Refusal as refusal:
        await _refuse(scope, dict(read.pairs), client, exchange, refusal)
    except bodies.ClientGone:
        pass
    except Exception:  # the border: whatever it is, the caller is told in a form that it reads
        logger.exception("A call to %s failed in the relay.", scope["path"])
        if client.has_begun:
            client.cut()
        else:
            await _refuse(scope, dict(read.pairs), client, exchange, Refusal("The relay failed.", "server"))
    finally:
        client.close()


async def _answer(scope: Scope, read: heads.Read, receive: Any, client: Client, exchange: UUID) -> None:
    headers, query = dict(read.pairs), scope["query_string"].decode("latin-1")
    try:
        key = await authentication.authenticate(headers, query)
    except ApiKeyError as error:
        raise errors.key_refusal(error) from None
    method, path = scope["method"], scope["path"]
    if method == "GET" and await models_endpoint.answer_get(path, headers, key, client, exchange):
        return
    raw = scope.get("raw_path") or b""
    call = Call(
        loop=client.loop,
        exchange=exchange,
        method=method,
        path=path,
        query=heads.without_key(query),
        pairs=read.pairs,
        wire=read.wire,
        headers=headers,
        peer=(scope.get("client") or ("",))[0],
        key=key,
        address=addresses.find_address(method, path, raw) or _listed(method, path, raw, headers),
    )
    stopping.check_open()
    async with rate_limits.admitted(call):
        await _read_body(call, receive)
        await _send_on(call, client)


def _listed(method: str, path: str, raw: bytes, headers: dict[str, str]) -> Address:
    dialect = addresses.guess_dialect(path, headers)
    if addresses.has_dot_segments(path) or routes.listed_by(method, path) is None:
        raise errors.not_found(f"There is nothing at {method} {path[:NAMED]} here.", dialect)
    return Address(dialect=dialect, kind="other", path=addresses.quote_path(path, raw))


async def _read_body(call: Call, receive: Any) -> None:
    limit = settings.PARLEY_RELAY_BODY_MB * 1024 * 1024
    try:
        if int(call.headers.get("content-length") or 0) > limit:
            raise bodies.TooLarge
        call.body = await bodies.read(receive, limit=limit)
        encoding = call.headers.get("content-encoding", "")
        # In a thread: a few bytes may become many, and everybody's streams would wait meanwhile.
        call.told = (
            await asyncio.to_thread(bodies.unpacked, call.body, encoding, limit=limit) if encoding else call.body
        )
    except bodies.TooLarge:
        words = f"The request is larger than {settings.PARLEY_RELAY_BODY_MB} MB, the most that is taken here."
        raise Refusal(words, "too_large") from None
    except bodies.UnknownEncoding as error:
        words = f"The request is compressed as {error}: {', '.join(bodies.READ_HERE)} or none is read here."
        accepted = (("accept-encoding", ", ".join(bodies.READ_HERE)),)
        raise Refusal(words, status=415, headers=accepted) from None
    except bodies.Unreadable as error:
        raise Refusal(f"The request cannot be read: {error}.") from None
    except ValueError:
        raise Refusal("The request has no proper content-length.") from None
    if call.address.kind == "other":
        return
    try:
        await _look_into(call)
    except bodies.NotAnObject:
        raise Refusal(await parse_apart(len(call.told), bodies.why_without_model, call.told)) from None
    except bodies.Unreadable as error:
        raise Refusal(f"The request cannot be read: {error}.") from None
    await ownership.check_references(call)


async def _look_into(call: Call) -> None:
    size = len(call.told)
    call.see(*await parse_apart(size, body_peek.peek_body, call.told, call.address.dialect))
    if len(call.refers) > MOST_REFERENCES:
        raise bodies.Unreadable(f"it refers to more than {MOST_REFERENCES} files and items")
    call.recording = mode_of(call.key)
    call.naming = session_ids.read_session(call.headers, call.asked, key=call.key.id)
    if session_ids.BODY_FIELD in call.asked:
        call.told = call.body = await parse_apart(size, bodies.without_field, call.told, session_ids.BODY_FIELD)
        call.has_lost_session_field = call.is_changed = True


async def _send_on(call: Call, client: Client) -> None:
    upstreams = await parse_apart(len(call.told), _upstreams, call)
    has_choice = len(upstreams) > 1
    if has_choice:
        upstreams = _able(call, vendor_affinity.upstreams_with_answer(call, upstreams))
    if call.refers:
        upstreams = await ownership.upstreams_with_references(call, upstreams)
    if ownership.continued_id(call):
        await continuations.attach_earlier(call, upstreams)
    await rate_limits.reserve(call, upstreams[0])
    recording = Recording(call)
    recording.accept(upstreams[0])
    leaving = CallCancellation(client.loop)
    client.watch(leaving.client_is_gone)
    revocations.watch(call.key.pk, leaving)
    stopping.watch(leaving)
    try:
        await _carried(call, upstreams, client, recording)
    except ProviderError as error:
        await recording.end("timeout" if error.kind == "timeout" else "upstream_error", error=error.message)
        raise Refusal(error.message, error.kind, headers=(*_retry(error), *record_headers(call))) from None
    except Refusal as refusal:
        await recording.end("refused", error=refusal.message)
        refusal.headers += record_headers(call)
        raise
    except asyncio.CancelledError:
        why = _why_ended(leaving)
        await recording.end("stopped" if why or not client.is_gone else "client_gone", error=why)
        if not leaving.has_let_go():
            raise
        if why and not client.has_begun:
            kind: ErrorKind = "authentication" if leaving.is_ended else "overloaded"
            raise Refusal(why, kind, headers=record_headers(call)) from None
        if why:
            client.cut()
    finally:
        revocations.unwatch(call.key.pk, leaving)
        stopping.unwatch(leaving)
        leaving.close()
        await recording.end("client_gone" if client.is_gone else "server_lost")
        if recording.edges is not None:
            ownership.note_issued(call, recording.beginning)
            if has_choice and recording.upstream is not None:
                vendor_affinity.note_giver(call, recording.upstream, recording.beginning)
        if recording.names is not None:
            names = recording.names
            ownership.remember(call, await parse_apart(names.unread_size, names.end))


def _why_ended(leaving: CallCancellation) -> str:
    """Why the relay itself ended a call; empty if the caller left."""
    if leaving.is_ended:
        return revocations.WHY
    return stopping.WHY if leaving.is_stopped else ""


def _able(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """What cannot be translated is for those alone who speak the caller's language, where there are any."""
    if call.address.kind == "chat" and not ownership.continued_id(call):
        return upstreams
    if continuations.is_ours(ownership.previous_response(call)):
        return upstreams
    return [upstream for upstream in upstreams if upstream.is_native(call.address.dialect)] or upstreams


def _carried(call: Call, upstreams: list[Upstream], client: Client, recording: Recording) -> Awaitable[None]:
    """Where one of the upstreams speaks another language, a reply may have to be translated, whoever is asked first."""
    continuations.check_continuation(call, upstreams)
    if call.earlier is None and all(upstream.is_native(call.address.dialect) for upstream in upstreams):
        return carry(call, upstreams, client, recording)
    if call.address.kind == "chat":
        return translate(call, upstreams, client, recording)
    return count(call, client, recording)


def _upstreams(call: Call) -> list[Upstream]:
    try:
        if call.address.kind == "other":
            return _passing(call)
        if not call.model:
            raise Refusal(bodies.why_without_model(call.told))
        return routes.upstreams_for(call.model, dialect=call.address.dialect, sticky=call.sticky)
    except NoSuchModel as error:
        raise errors.model_not_found(error.model) from None


def _passing(call: Call) -> list[Upstream]:
    if provider := routes.listed_by(call.method, call.path):
        return [Upstream(provider=provider, model="", dialect=call.address.dialect)]
    asked = bodies.peek_fields(call.told)
    call.see({"model": asked.get("model") or bodies.model_in_form(call.told)})
    # It belongs to no conversation that would have to stay where it is.
    found = routes.passing(call.address.dialect, model=call.model, sticky=lambda: call.exchange.bytes)
    if not found:
        raise errors.not_found(f"No provider here takes {call.path}.", call.address.dialect)
    return found


def _retry(error: ProviderError) -> tuple[tuple[str, str], ...]:
    return (("retry-after", f"{error.retry_after:.0f}"),) if error.retry_after else ()


async def _refuse(scope: Scope, headers: dict[str, str], client: Client, exchange: UUID, refusal: Refusal) -> None:
    address = addresses.find_address(scope["method"], scope["path"])
    status, body = refusal.told(address.dialect if address else addresses.guess_dialect(scope["path"], headers))
    ours = [(name.encode(), value.encode()) for name, value in refusal.headers]
    await client.begin(status, [*json_headers(body), (b"x-parley-exchange-id", str(exchange).encode()), *ours])
    await client.write(body, is_last=True)
