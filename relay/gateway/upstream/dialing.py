"""Calling an upstream, with fallback to the next one before the first byte.

What the last one says is the caller's to read, an error too: its body and its headers pass untouched, because clients
decide by them whether to try again. So nothing is tried twice here at the same place.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.errors import ProviderError, Unreachable
from relay.gateway.call.calls import Call
from relay.gateway.journal.records import Attempt
from relay.gateway.routing import routes
from relay.gateway.routing.routes import Upstream
from relay.gateway.upstream.timeouts import words_of
from relay.providers import raw_http
from relay.providers.endpoints import Endpoint
from relay.providers.raw_http import RawRequest, Response
from relay.providers.retries import retry_after
from relay.runtime.parsing import parse_apart

BUSY_OR_BROKEN = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
# What another upstream may do better: it is busy, broken, or does not know us any more.
ANOTHER_MAY_HELP = BUSY_OR_BROKEN | {401, 402, 403, 404}

# How one says that what a call goes on from is not kept there.
NOT_THERE = frozenset({400, 404})


@dataclass(slots=True, kw_only=True)
class Reply:
    """An upstream has answered; `first` is what had to be read of it already to know that it will go on."""

    upstream: Upstream
    endpoint: Endpoint
    loop: AbstractEventLoop
    response: Response
    first: bytes = b""
    waiting: words_of | None = None

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def is_stream(self) -> bool:
        return self.response.headers.get("content-type", "").lower().startswith("text/event-stream")

    async def next(self) -> bytes:
        content = self.response.content
        if content.exception() is None and (there := content.read_nowait()):
            return there
        if self.waiting is None:
            self.waiting = words_of(self.endpoint, self.loop, has_begun=True)
        with self.waiting:
            return await content.readany()

    async def problem(self) -> str:
        """Why what came with a good status is no answer at all, in a sentence. Of a whole reply the first bytes are
        read for it; a stream of events is passed on at once."""
        name, kind = self.endpoint.name, self.response.headers.get("content-type", "").lower()
        if "html" in kind:
            return f"The provider {name} sent a web page instead of an answer. Check its base URL."
        if self.is_stream or self.response.headers.get("content-encoding"):
            return ""
        self.first = self.first or await self.next()
        if not self.first:
            return f"The provider {name} sent an empty reply. Check its base URL."
        if _may_be_an_answer(self.first):
            return ""
        return f"The provider {name} sent something that is no answer of a model. Check its base URL and its dialect."


def _may_be_an_answer(first: bytes) -> bool:
    """JSON or events, perhaps after spaces that keep the connection alive."""
    begun = first.lstrip(b" \t\r\n\xef\xbb\xbf")
    return not begun or begun.startswith((b"{", b"[", b"data:", b"event:", b"id:", b"retry:", b":"))


Make = Callable[[Call, Upstream, Endpoint], RawRequest]


async def dial(call: Call, upstreams: Sequence[Upstream], make: Make) -> Reply:
    """The first upstream that answers. Raises the ProviderError of the last one that could not be reached."""
    for place, upstream in enumerate(upstreams):
        is_last = place + 1 == len(upstreams)
        began = time.monotonic()
        try:
            reply = await _attempt(call, upstream, make, is_last=is_last)
        except ProviderError as error:
            call.attempts.append(Attempt(upstream.provider.name, 0, time.monotonic() - began, error.message))
            _cool(call, upstream, error.retry_after, status=0)
            if is_last:
                raise
            continue
        call.attempts.append(Attempt(upstream.provider.name, reply.status, time.monotonic() - began))
        is_not_there = call.is_looked_for and reply.status in NOT_THERE
        if reply.status not in ANOTHER_MAY_HELP and not is_not_there:
            if _tells_of_model(call, upstream, reply.status):
                routes.warm(upstream)
            return reply
        if not is_not_there:
            _cool(call, upstream, retry_after(reply.response.headers), status=reply.status)
        if is_last:
            return reply
        reply.response.close()
    raise Unreachable("no upstream was left to ask")


def _cool(call: Call, upstream: Upstream, seconds: float | None, *, status: int) -> None:
    if _tells_of_model(call, upstream, status):
        routes.cool(upstream, seconds=seconds)


def _tells_of_model(call: Call, upstream: Upstream, status: int) -> bool:
    """What a listed path or a count came to says nothing of how the model answers; nor does that embeddings, pictures
    or sounds are refused by one that may chat all the same. A status of 0: it could not be reached."""
    if call.address.kind == "other":
        return bool(upstream.model) and (status < 400 or status in BUSY_OR_BROKEN)
    return call.address.kind == "chat"


async def _attempt(call: Call, upstream: Upstream, make: Make, *, is_last: bool) -> Reply:
    endpoint = await upstream.provider.reach()
    request = await _made(call, upstream, endpoint, make)
    with words_of(endpoint, call.loop, has_begun=False, sending=len(request.body)):
        response = await raw_http.ask(
            request,
            method=call.method,
            loop=call.loop,
            keeps_alive=upstream.provider.keeps_alive,
            connect_seconds=endpoint.patience.connect,
        )
    reply = Reply(upstream=upstream, endpoint=endpoint, loop=call.loop, response=response)
    if not is_last and reply.status not in ANOTHER_MAY_HELP:
        try:
            reply.first = await _first(reply)
        except BaseException:
            response.close()
            raise
    return reply


async def _made(call: Call, upstream: Upstream, endpoint: Endpoint, make: Make) -> RawRequest:
    """A body that goes on as it came needs no parsing; one that is changed or translated may."""
    if upstream.is_native(call.address.dialect) and upstream.model in ("", call.model):
        return make(call, upstream, endpoint)
    return await parse_apart(len(call.told), make, call, upstream, endpoint)


async def _first(reply: Reply) -> bytes:
    """While there is somebody else to ask, an answer counts only once it has begun."""
    endpoint = reply.endpoint
    with words_of(endpoint, reply.loop, has_begun=False):
        first = await reply.response.content.readany()
    if not first and reply.status == 200:
        raise Unreachable(f"The provider {endpoint.name} gave an empty answer", provider=endpoint.name)
    return first
