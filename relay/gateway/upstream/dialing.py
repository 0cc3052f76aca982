"""Calls of upstreams, with fallback to the next one before the first byte, and timeouts of silent ones.

The reply of the last upstream is the caller's to read, an error too: its body and its headers pass unchanged, because
clients decide by them whether to try again. So no upstream is tried twice.

aiohttp would set a timer for each piece of a reply and cancel it when the next one comes. Nearly always that is soon,
so one timer checks all calls of an event loop a few times a second.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.errors import ProviderError, Unreachable
from relay.gateway import routes
from relay.gateway.call.calls import Call
from relay.gateway.call.headers import headers_to_record
from relay.gateway.journal.records import Attempt
from relay.gateway.recording import Recording
from relay.gateway.routes import Upstream
from relay.providers import raw_http
from relay.providers.endpoints import Endpoint
from relay.providers.event_stream import network_errors
from relay.providers.http import retry_after
from relay.providers.raw_http import RawRequest, Response
from relay.runtime.event_loop import PerLoop, parse_apart

BUSY_OR_BROKEN = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
# Another upstream may succeed: this one is busy, broken, or does not accept our key any more.
ANOTHER_MAY_HELP = BUSY_OR_BROKEN | {401, 402, 403, 404}
# The upstream does not have the answer that the call continues.
NOT_THERE = frozenset({400, 404})
CHECK_SECONDS = 0.25
# A request is still being sent for as long as its size takes at so many bytes a second.
SLOWEST_UPLOAD = 64 * 1024


@dataclass(slots=True, kw_only=True)
class Reply:
    """The reply of an upstream; `first` is what was read of it already, to know that it has begun."""

    upstream: Upstream
    endpoint: Endpoint
    loop: AbstractEventLoop
    response: Response
    first: bytes = b""
    timeout: idle_timeout | None = None

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def is_stream(self) -> bool:
        return self.response.headers.get("content-type", "").lower().startswith("text/event-stream")

    async def next(self) -> bytes:
        content = self.response.content
        if content.exception() is None and (available := content.read_nowait()):
            return available
        if self.timeout is None:
            self.timeout = idle_timeout(self.endpoint, self.loop, has_begun=True)
        with self.timeout:
            return await content.readany()

    async def problem(self) -> str:
        """Why a reply with a good status is not an answer. Of a whole reply the first bytes are read for it."""
        name, kind = self.endpoint.name, self.response.headers.get("content-type", "").lower()
        if "html" in kind:
            return f"The provider {name} sent a web page instead of an answer. Check its base URL."
        if self.is_stream or self.response.headers.get("content-encoding"):
            return ""
        self.first = self.first or await self.next()
        if not self.first:
            return f"The provider {name} sent an empty reply. Check its base URL."
        if _may_be_answer(self.first):
            return ""
        return f"The provider {name} sent something that is no answer of a model. Check its base URL and its dialect."

    async def record_end(self, recording: Recording, reason: str, *, error: str = "", **metadata: str) -> None:
        await recording.end(
            reason,
            status=self.status,
            headers=headers_to_record(self.response.raw_headers),
            error=error,
            provider=self.upstream.provider.name,
            **metadata,
        )


def _may_be_answer(first: bytes) -> bool:
    """JSON or events, perhaps after spaces that keep the connection alive."""
    text = first.lstrip(b" \t\r\n\xef\xbb\xbf")
    return not text or text.startswith((b"{", b"[", b"data:", b"event:", b"id:", b"retry:", b":"))


MakeRequest = Callable[[Call, Upstream, Endpoint], RawRequest]


async def dial(call: Call, upstreams: Sequence[Upstream], make_request: MakeRequest) -> Reply:
    """The reply of the first upstream that answers. Raises the ProviderError of the last one."""
    for place, upstream in enumerate(upstreams):
        is_last = place + 1 == len(upstreams)
        began = time.monotonic()
        try:
            reply = await _attempt(call, upstream, make_request, is_last=is_last)
        except ProviderError as error:
            call.attempts.append(Attempt(upstream.provider.name, 0, time.monotonic() - began, error.message))
            _start_cooldown(call, upstream, error.retry_after, status=0)
            if is_last:
                raise
            continue
        call.attempts.append(Attempt(upstream.provider.name, reply.status, time.monotonic() - began))
        is_not_there = call.is_origin_unknown and reply.status in NOT_THERE
        if reply.status not in ANOTHER_MAY_HELP and not is_not_there:
            if _concerns_model(call, upstream, reply.status):
                routes.end_cooldown(upstream)
            return reply
        if not is_not_there:
            _start_cooldown(call, upstream, retry_after(reply.response.headers), status=reply.status)
        if is_last:
            return reply
        reply.response.close()
    raise Unreachable("no upstream was left to ask")


def _start_cooldown(call: Call, upstream: Upstream, seconds: float | None, *, status: int) -> None:
    if _concerns_model(call, upstream, status):
        routes.start_cooldown(upstream, seconds=seconds)


def _concerns_model(call: Call, upstream: Upstream, status: int) -> bool:
    """Whether the status (0 for none) says how the model answers. A listed path or a count does not, nor does a refusal
    of embeddings, images or audio by a model that may chat all the same."""
    if call.address.kind == "other":
        return bool(upstream.model) and (status < 400 or status in BUSY_OR_BROKEN)
    return call.address.kind == "chat"


async def _attempt(call: Call, upstream: Upstream, make_request: MakeRequest, *, is_last: bool) -> Reply:
    endpoint = await upstream.provider.reach()
    if upstream.is_native(call.address.dialect) and upstream.model in ("", call.model):
        request = make_request(call, upstream, endpoint)
    else:  # a body that is changed or translated is parsed
        request = await parse_apart(len(call.body), make_request, call, upstream, endpoint)
    with idle_timeout(endpoint, call.loop, has_begun=False, sending=len(request.body)):
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
            reply.first = await _first_bytes(reply)
        except BaseException:
            response.close()
            raise
    return reply


async def _first_bytes(reply: Reply) -> bytes:
    """While there is another upstream, a reply counts only once it has begun."""
    endpoint = reply.endpoint
    with idle_timeout(endpoint, reply.loop, has_begun=False):
        first = await reply.response.content.readany()
    if not first and reply.status == 200:
        raise Unreachable(f"The provider {endpoint.name} gave an empty answer", provider=endpoint.name)
    return first


# Timeouts.


class _Watch:
    """All waits of one event loop."""

    def __init__(self) -> None:
        self.waiting: set[idle_timeout] = set()
        self.timer: asyncio.TimerHandle | None = None

    def add(self, timeout: idle_timeout) -> None:
        self.waiting.add(timeout)
        if self.timer is None:
            self._schedule()

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for timeout in [timeout for timeout in self.waiting if timeout.until <= now]:
            timeout.expire()
        self.timer = None
        if self.waiting:
            self._schedule()

    def _schedule(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)


_watches = PerLoop(_Watch)


class idle_timeout(network_errors):  # noqa: N801 - reads as a clause: with idle_timeout(endpoint, has_begun=True)
    """Context of each wait for bytes of an upstream, reusable. Raises errors of the network as ProviderErrors.

    `sending` is how many bytes must be sent before the upstream can answer.
    """

    __slots__ = ("is_over", "loop", "seconds", "task", "until", "watch")

    def __init__(self, endpoint: Endpoint, loop: AbstractEventLoop, *, has_begun: bool, sending: int = 0) -> None:
        super().__init__(endpoint, has_begun=has_begun)
        self.loop = loop
        self.seconds = endpoint.patience.idle + sending / SLOWEST_UPLOAD
        self.is_over = False

    @property
    def subject(self) -> str:
        """Callers read the provider's name, not its address."""
        return f"The provider {self.endpoint.name}"

    def __enter__(self) -> None:
        self.task = asyncio.current_task(self.loop)
        self.until = self.loop.time() + self.seconds
        self.watch = _watches.of(self.loop)
        self.watch.add(self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.watch.waiting.discard(self)
        if self.is_over and self.task is not None and isinstance(error, asyncio.CancelledError):
            self.task.uncancel()
            error = TimeoutError()
        super().__exit__(kind, error, trace)

    def expire(self) -> None:
        self.watch.waiting.discard(self)
        if self.task is not None:
            self.is_over = True
            self.task.cancel()
