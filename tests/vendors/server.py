"""The played vendors' HTTP server, in a thread of its own, and what it remembers of every request."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from history.answers.assembly import Assembler
from history.answers.events import AnswerFailed, AnswerStarted
from history.dialects import DIALECTS
from history.entries import Reasoning
from tests.servers.processes import wait_for
from tests.vendors.plays import Play, says
from tests.vendors.rules import problem_with

# The key that each vendor knows.
KEYS = {
    "openai": "sk-loopback-openai-0123456789abcdef",
    "anthropic": "sk-ant-loopback-0123456789abcdef",
    "gemini": "AIzaLoopback0123456789abcdef",
}
VENDOR_OF_DIALECT = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic-messages": "anthropic",
    "gemini-generate": "gemini",
}
NOISE = {
    "openai-chat": b": keepalive\r\n\r\n",
    "openai-responses": b'event: response.brand_new\ndata: {"type":"response.brand_new"}\n\n',
    "anthropic-messages": b'event: ping\ndata: {"type":"ping"}\n\n',
    "gemini-generate": b": keepalive\n\n",
}


@dataclass(kw_only=True)
class Seen:
    """One request as it came. `left`: the caller went away before the end; `ended`: it got everything."""

    dialect: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]
    problem: str | None = None
    left: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class Vendors:
    """A context manager: inside it there is a server at `url`."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.models: dict[str, list[dict[str, Any]]] = {}
        self.models_wait = False
        self.pages: dict[str, web.Response | dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self.signatures: dict[str, set[str]] = defaultdict(set)
        self._plays: dict[str, deque[Play]] = defaultdict(deque)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vendors", daemon=True)
        self.port = 0

    # For tests.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def base_url(self, dialect: str) -> str:
        """As the vendor's own SDK would be configured."""
        return self.url + ("/v1" if dialect.startswith("openai") else "")

    def plays(self, dialect: str, *plays: Play) -> None:
        """What is done with the next requests in this language; after that, each is told “Hello.”"""
        self._plays[dialect].extend(plays)

    def forget(self) -> None:
        """What was to be played and was not."""
        self._plays.clear()

    def requests_for(self, dialect: str) -> list[Seen]:
        return [seen for seen in self.requests if seen.dialect == dialect]

    def wait_for(self, count: int, *, seconds: float = 10) -> None:
        """Until so many requests have come."""
        wait_for(lambda: len(self.requests) >= count, seconds=seconds, what=f"request {count}")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # The server.

    async def _start(self) -> None:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_post("/v1/chat/completions", self._answer_in("openai-chat"))
        application.router.add_post("/openai/deployments/{model}/chat/completions", self._answer_in("openai-chat"))
        application.router.add_post("/v1/responses", self._answer_in("openai-responses"))
        application.router.add_post("/v1/messages", self._answer_in("anthropic-messages"))
        for version in ("v1", "v1beta"):
            application.router.add_post(f"/{version}/models/{{model}}:{{verb}}", self._answer_in("gemini-generate"))
            application.router.add_get(f"/{version}/models", self._list_models)
        application.router.add_route("*", "/{page:.*}", self._page)
        # Without it a handler never learns that the caller is gone.
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    def _answer_in(self, dialect: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            seen = await _seen(request, dialect)
            if not seen.body:  # a client checks whether this address exists
                return _refusal(dialect, AnswerFailed(message="Missing required parameter.", kind="invalid_request"))
            self.requests.append(seen)
            try:
                response = await self._respond(request, seen)
            except (asyncio.CancelledError, ConnectionError):
                seen.left.set()
                raise
            seen.ended.set()
            return response

        return answer

    async def _respond(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if not _has_key(request, VENDOR_OF_DIALECT[seen.dialect]):
            return _refusal(seen.dialect, AnswerFailed(message="Incorrect API key provided.", kind="authentication"))
        signatures = self.signatures[seen.dialect]
        seen.problem = problem_with(seen.dialect, seen.body, seen.headers, signatures)
        if seen.problem:
            return _refusal(seen.dialect, AnswerFailed(message=seen.problem, kind="invalid_request"))
        waiting = self._plays[seen.dialect]
        play = waiting.popleft() if waiting else says("Hel", "lo.")
        signatures.update(_signatures(play))
        await asyncio.sleep(play.wait)
        if play.failed:
            return _refusal(seen.dialect, play.failed, status=play.status, headers=play.headers)
        if not _wants_stream(seen):
            return _whole(seen, play)
        return await _streamed(request, seen, play)

    async def _list_models(self, request: web.Request) -> web.StreamResponse:
        """In the shape of the caller, as the real addresses are different ones."""
        vendor = "gemini" if request.path.startswith("/v1beta") else "openai"
        vendor = "anthropic" if "anthropic-version" in request.headers else vendor
        if not _has_key(request, vendor):
            dialect = next(name for name, owner in VENDOR_OF_DIALECT.items() if owner == vendor)
            return _refusal(dialect, AnswerFailed(message="Incorrect API key provided.", kind="authentication"))
        while self.models_wait:  # noqa: ASYNC110  a test ends it from its own thread
            await asyncio.sleep(0.01)
        listed = self.models.get(vendor, [])
        return web.json_response({"models": listed} if vendor == "gemini" else {"object": "list", "data": listed})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """Other content of a test at a path."""
        page = self.pages.get(request.path)
        if page is None:
            return web.json_response({"error": {"message": f"no page at {request.path}"}}, status=404)
        if callable(page) and not isinstance(page, web.Response):
            page = page(await request.json())
        return page if isinstance(page, web.Response) else web.json_response(page)


async def _seen(request: web.Request, dialect: str) -> Seen:
    body = await request.json()
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Seen(dialect=dialect, path=request.path, query=dict(request.query), headers=headers, body=body)


def _has_key(request: web.Request, vendor: str) -> bool:
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    names = {"openai": ("api-key",), "anthropic": ("x-api-key",), "gemini": ("x-goog-api-key",)}[vendor]
    return KEYS[vendor] in (bearer, *(request.headers.get(name) for name in names), request.query.get("key"))


def _wants_stream(seen: Seen) -> bool:
    if seen.dialect == "gemini-generate":
        return seen.path.endswith(":streamGenerateContent")
    return bool(seen.body.get("stream"))


def _model_of(seen: Seen) -> str:
    return str(seen.body.get("model") or seen.path.rpartition("/")[2].partition(":")[0])


def _signatures(play: Play) -> Iterator[str]:
    for part in Assembler().feed_all(play.events).output().parts:
        if isinstance(part, Reasoning) and part.signature:
            yield part.signature


def _refusal(
    dialect: str, failed: AnswerFailed, *, status: int = 0, headers: Mapping[str, str] | None = None
) -> web.Response:
    usual, body = DIALECTS[dialect].encode_error(failed)
    status = usual if status in (0, 200) else status
    return web.json_response(body, status=status, headers={"request-id": "req_played", **(headers or {})})


def _whole(seen: Seen, play: Play) -> web.Response:
    if play.body is not None:
        return web.Response(body=play.body, status=play.status, content_type=play.content_type or "application/json")
    output = Assembler(model=_model_of(seen)).feed_all(play.events).output()
    reply = DIALECTS[seen.dialect].encode_reply(output, reply_id="reply-1", created=1)
    return web.json_response(reply, headers=play.headers)


async def _streamed(request: web.Request, seen: Seen, play: Play) -> web.StreamResponse:
    response = web.StreamResponse(status=play.status, headers={"request-id": "req_played", **play.headers})
    response.content_type = play.content_type or "text/event-stream"
    await response.prepare(request)
    left = play.cut_at if play.cut_at is not None else float("inf")
    async for chunk in _chunks(seen, play):
        await response.write(chunk[: int(min(left, len(chunk)))])
        left -= len(chunk)
        if left <= 0:
            assert request.transport is not None
            request.transport.close()
            return response
    await response.write_eof()
    return response


async def _chunks(seen: Seen, play: Play) -> AsyncIterator[bytes]:
    if play.body is not None:
        yield play.body
        await asyncio.sleep(play.linger)
        return
    with_usage = seen.dialect != "openai-chat" or bool(seen.body.get("stream_options", {}).get("include_usage"))
    encoder = DIALECTS[seen.dialect].stream_encoder(
        model=_model_of(seen), reply_id="reply-1", created=1, with_usage=with_usage
    )
    for event in play.events:
        if isinstance(event, AnswerStarted):
            event = AnswerStarted(model=event.model or _model_of(seen), request_id=event.request_id or "reply-1")
        if chunk := encoder.feed(event):
            yield chunk + (NOISE[seen.dialect] if play.noise else b"")
            await asyncio.sleep(play.delay)
    await asyncio.sleep(play.linger)
    if chunk := encoder.end():
        yield chunk
