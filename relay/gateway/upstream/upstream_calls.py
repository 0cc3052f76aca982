"""Calls of upstreams, with fallback to the next one before the first byte, and timeouts of silent ones.

The reply of the last upstream is the caller's to read, an error too: its body and its headers pass unchanged, because
clients decide by them whether to try again. So no upstream is tried twice.
"""

import asyncio
import time
from asyncio import AbstractEventLoop
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from relay.errors import ProviderError, Unreachable
from relay.gateway import routes
from relay.gateway.arrivals import note_limits
from relay.gateway.call.calls import Call
from relay.gateway.call.headers import headers_to_record
from relay.gateway.journal.records import Attempt
from relay.gateway.recording import Recording
from relay.gateway.routes import Upstream
from relay.gateway.upstream.upstream_request import UpstreamRequest
from relay.providers import connections
from relay.providers.connections import Response
from relay.providers.endpoints import Endpoint
from relay.providers.event_stream import network_errors
from relay.providers.http import retry_after
from relay.runtime.event_loop import Deadlines, PerLoop, parse_apart

BUSY_OR_BROKEN = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
# Another upstream may succeed: this one is busy, broken, or does not accept our key any more.
ANOTHER_MAY_HELP = BUSY_OR_BROKEN | {401, 402, 403, 404}
LOGIN_REFUSED = frozenset({401, 403})
ANSWER_MISSING = frozenset({400, 404})  # the upstream does not have the answer that the call continues
CHECK_SECONDS = 0.25
SLOWEST_UPLOAD = 64 * 1024  # a request is still being sent for as long as its size takes at so many bytes a second


@dataclass(slots=True, kw_only=True)
class Reply:
    """The reply of an upstream; `first` is what was read of it already, to know that it has begun."""

    upstream: Upstream
    endpoint: Endpoint
    loop: AbstractEventLoop
    response: Response
    first: bytes = b""
    timeout: "idle_timeout | None" = None

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def is_stream(self) -> bool:
        return self.response.headers.get("content-type", "").lower().startswith("text/event-stream")

    async def next(self) -> bytes:
        if available := connections.available(self.response.content):
            return available
        self.timeout = self.timeout or idle_timeout(self.endpoint, self.loop, has_begun=True)
        with self.timeout:
            return await self.response.content.readany()

    async def problem(self) -> str:
        """Why a reply with a good status is not an answer. Of a whole reply the first bytes are read for it."""
        name, kind = self.endpoint.name, self.response.headers.get("content-type", "").lower()
        if "html" in kind:
            return f"The provider {name} sent a web page instead of an answer. Check its base URL."
        if self.is_stream or self.response.headers.get("content-encoding"):
            return ""
        self.first = self.first or await self.next()
        if not self.first:
            return f"The provider {name} sent an empty response. Check its base URL."
        # JSON or events, perhaps after spaces that keep the connection alive.
        text = self.first.lstrip(b" \t\r\n\xef\xbb\xbf")
        if not text or text.startswith((b"{", b"[", b"data:", b"event:", b"id:", b"retry:", b":")):
            return ""
        return f"The provider {name} sent an invalid response. Check its base URL and its dialect."

    async def record_end(self, recording: Recording, reason: str, *, error: str = "", **metadata: str) -> None:
        await recording.end(
            reason,
            status=self.status,
            headers=headers_to_record(self.response.raw_headers),
            error=error,
            provider=self.upstream.provider.name,
            **metadata,
        )


async def call_first_available(request: UpstreamRequest, upstreams: Sequence[Upstream]) -> Reply:
    """The reply of the first upstream that answers. Raises the ProviderError of the last one."""
    call = request.call
    for place, upstream in enumerate(upstreams):
        is_last = place + 1 == len(upstreams)
        began = time.monotonic()
        try:
            reply = await _attempt(request, upstream, is_last=is_last)
        except ProviderError as error:
            error.message = call.mask(error.message)
            call.attempts.append(Attempt(upstream.provider.name, 0, time.monotonic() - began, error.message))
            if _concerns_model(call, upstream, 0):
                routes.start_cooldown(upstream, seconds=error.retry_after)
            if is_last:
                raise
            continue
        call.attempts.append(Attempt(upstream.provider.name, reply.status, time.monotonic() - began))
        is_not_there = call.is_origin_unknown and reply.status in ANSWER_MISSING
        is_answer = reply.status not in ANOTHER_MAY_HELP and not is_not_there
        if upstream.is_plan:
            note_limits(call.key, upstream.provider.name, upstream.dialect, reply.response.raw_headers, call.login)
            # The client must see it: it renews its login then.
            is_answer = is_answer or reply.status in LOGIN_REFUSED
        if _concerns_model(call, upstream, reply.status):
            if is_answer:
                routes.end_cooldown(upstream)
            elif not is_not_there:
                routes.start_cooldown(upstream, seconds=retry_after(reply.response.headers))
        if is_answer or is_last:
            return reply
        reply.response.close()
    raise Unreachable("no upstream is left")


def _concerns_model(call: Call, upstream: Upstream, status: int) -> bool:
    """Whether the status (0 for none) says how the model answers. One that refuses embeddings or images may chat."""
    if upstream.is_plan and 0 < status < 500:
        return False  # it concerns one caller's login or plan
    if call.address.kind == "other":
        return bool(upstream.model) and (status < 400 or status in BUSY_OR_BROKEN)
    return call.address.kind == "chat"


async def _attempt(request: UpstreamRequest, upstream: Upstream, *, is_last: bool) -> Reply:
    call, endpoint = request.call, await upstream.provider.reach()
    if request.is_forwarded_to(upstream) and upstream.model in ("", call.model):
        raw = request.make(upstream, endpoint)
    else:  # a body that is changed or translated is parsed
        raw = await parse_apart(call.size, request.make, upstream, endpoint)
    with idle_timeout(endpoint, call.loop, has_begun=False, sending=len(raw.body)):
        response = await connections.ask(
            raw,
            method=call.method,
            loop=call.loop,
            keeps_alive=upstream.provider.keeps_alive,
            connect_seconds=endpoint.timeouts.connect,
        )
    reply = Reply(upstream=upstream, endpoint=endpoint, loop=call.loop, response=response)
    if is_last or reply.status in ANOTHER_MAY_HELP:
        return reply
    try:  # while there is another upstream, a reply counts only once it has begun
        with idle_timeout(endpoint, call.loop, has_begun=False):
            reply.first = await connections.read_available(response.content)
        if not reply.first and reply.status == 200:
            raise Unreachable(f"The provider {endpoint.name} sent an empty response", provider=endpoint.name)
    except BaseException:
        response.close()
        raise
    return reply


_deadlines = PerLoop(partial(Deadlines, CHECK_SECONDS))


class idle_timeout(network_errors):  # noqa: N801 - reads as a clause: with idle_timeout(endpoint, has_begun=True)
    """Context of each wait for bytes of an upstream, which may have to read `sending` bytes before it can answer."""

    __slots__ = ("deadlines", "loop", "seconds", "task")

    def __init__(self, endpoint: Endpoint, loop: AbstractEventLoop, *, has_begun: bool, sending: int = 0) -> None:
        # Callers read the provider's name, not its address.
        super().__init__(endpoint, has_begun=has_begun, subject=f"The provider {endpoint.name}")
        self.loop = loop
        self.seconds = endpoint.timeouts.idle + sending / SLOWEST_UPLOAD

    def __enter__(self) -> None:
        self.task = asyncio.current_task(self.loop)
        self.deadlines = _deadlines.of(self.loop)
        if self.task is not None:
            self.deadlines.add(self, self.loop.time() + self.seconds, self.task.cancel)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_over = not self.deadlines.discard(self)
        if is_over and self.task is not None and isinstance(error, asyncio.CancelledError):
            self.task.uncancel()
            error = TimeoutError()
        super().__exit__(kind, error, trace)
