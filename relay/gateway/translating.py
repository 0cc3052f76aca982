"""Carrying a call whose two ends speak different languages: through typed events, piece by piece.

The request is read into entries and written anew for the upstream; its stream becomes events, and these the stream or
the whole reply that the caller's SDK expects. The upstream is always asked for a stream: so a caller that wants none
still gets what there was when it breaks off. What cannot be carried is named in a header and in the record; what a
stream turns out to hold after its headers are sent, in the record alone.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from django.conf import settings

from history.assembly import Assembler
from history.dialects import DIALECTS, DecodedRequest, DialectError, LossCode, StreamEncoder, context_of
from history.dialects.loose import as_bytes, obj, string
from history.events import Ended, ErrorKind, Event, Failed, MediaPiece, OtherPiece, Skipped, Started
from history.tokens import estimate_context
from relay.errors import Cut, ProviderError, VendorFault
from relay.gateway import headers as heads
from relay.gateway.addresses import ANTHROPIC, CHAT, GEMINI, RESPONSES
from relay.gateway.bodies import UnknownEncoding, Unreadable
from relay.gateway.calls import Call
from relay.gateway.carrying import pass_back, request
from relay.gateway.client import COMMENT, EMPTY_LINE, Client
from relay.gateway.dialing import Reply, Request, dial
from relay.gateway.recording import Recording
from relay.gateway.refusals import Refusal
from relay.gateway.routes import Upstream
from relay.gateway.telling import json_headers, our_headers
from relay.gateway.unpacking import Unpacking
from relay.providers import answers
from relay.providers.answers import blotted
from relay.providers.base import CallNotes
from relay.providers.endpoints import Endpoint

NOT_CARRIED = "x-parley-not-carried"
MOST_NAMED = 1_000
# Fields that say something to a vendor about the caller and nothing about the answer.
OF_NO_MATTER = frozenset(
    {
        *(
            "metadata",
            "user",
            "safety_identifier",
            "prompt_cache_key",
            "store",
            "stream_options",
            "service_tier",
            "serviceTier",
        ),
        *("client_metadata", "include", "labels", "prompt_cache_retention"),
        # Read as an option: whoever cannot write it names it.
        "parallel_tool_calls",
    }
)
# Fields that say nothing as long as they say this.
USUAL = {"n": 1}
# Of these the fields inside are named, one by one.
OF_FIELDS = frozenset({"generationConfig", "toolConfig", "output_config", "text"})
# The losses that are told with what was lost.
SAYS_WHICH = {LossCode.OPTION_NOT_CARRIED: "name", LossCode.TOOL_NOT_CARRIED: "name", LossCode.PART_NOT_CARRIED: "type"}
# Names are the caller's or the vendor's own words, and must not end a header or be taken for two of them.
NOT_IN_A_NAME = re.compile(r"[^\x21-\x2b\x2d-\x7e]")
# Of a refusal that is worth telling in another language.
PASSED_ERROR_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
ERROR_BYTES = 64 * 1024
# How the vendors' own names of answers begin.
BEGINNINGS = {ANTHROPIC: "msg_", CHAT: "chatcmpl-", RESPONSES: "resp_"}


async def translate(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    """Of several upstreams some may speak the caller's language: from those the bytes pass as they are."""
    notes, dialect = CallNotes(), call.address.dialect
    decoded = cache(lambda: _decoded(call))

    def make(call: Call, upstream: Upstream, endpoint: Endpoint) -> Request:
        if upstream.is_native(dialect):
            return request(call, upstream, endpoint)
        return _request(decoded(), upstream, endpoint, notes)

    reply = await dial(call, upstreams, make)
    if reply.upstream is not upstreams[0]:
        recording.answered_by(reply.upstream)
    if reply.upstream.is_native(dialect):
        await pass_back(call, reply, client, recording)
        return
    lost = dict.fromkeys(_lost(decoded(), notes))
    translation = Translation(call=call, reply=reply, client=client, recording=recording, lost=lost)
    try:
        await translation.tell()
    finally:
        reply.response.close()


async def count(call: Call, client: Client, recording: Recording) -> None:
    """An upstream of another language cannot count for this caller: our estimate is told in its place."""
    asked = _decoded(call)
    tokens = estimate_context(context_of(asked).entries, system=asked.system, tools=asked.tools)
    body = as_bytes(_counted(tokens, call.address.dialect))
    await client.begin(200, json_headers(body) + our_headers(call))
    await client.write(body, is_last=True)
    recording.end("done", status=200, estimated=True)


def _counted(tokens: int, dialect: str) -> dict[str, Any]:
    if dialect == GEMINI:
        return {"totalTokens": tokens}
    named = {"object": "response.input_tokens"} if dialect == RESPONSES else {}
    return {**named, "input_tokens": tokens}


def _decoded(call: Call) -> DecodedRequest:
    dialect = call.address.dialect
    try:
        asked = DIALECTS[dialect].decode_request(call.all_asked())
    except (DialectError, ValueError) as error:
        raise Refusal(f"The request cannot be read: {error}.") from None
    return replace(asked, model=call.model, options=replace(asked.options, stream=True))


def _lost(asked: DecodedRequest, notes: CallNotes) -> Iterator[str]:
    """The names of what the request says and the upstream was not told."""
    for loss in (*asked.losses, *notes.losses):
        yield _named(loss.code, str(loss.values.get(SAYS_WHICH.get(loss.code, ""), "")))
    for name in _fields(asked.extra):
        if name not in asked.read:
            yield _named(LossCode.OPTION_NOT_CARRIED, name)
    if any(tool.extra.get("strict") is True for tool in asked.tools):
        yield _named(LossCode.OPTION_NOT_CARRIED, "strict")


def _fields(extra: Mapping[str, Any]) -> Iterator[str]:
    for name, value in extra.items():
        if name in OF_FIELDS and isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
        elif name not in OF_NO_MATTER and (name not in USUAL or value != USUAL[name]):
            yield name


def _named(code: LossCode, which: str = "") -> str:
    return f"{code.value}:{NOT_IN_A_NAME.sub('_', which)}" if which else code.value


def _request(asked: DecodedRequest, upstream: Upstream, endpoint: Endpoint, notes: CallNotes) -> Request:
    options = replace(asked.options, model=upstream.model, media=asked.blobs.__getitem__)
    written = upstream.provider.request_for(context_of(asked), options, notes)
    given = endpoint.request_headers(written.options.switches)
    plain = [("content-type", "application/json"), ("accept", "text/event-stream, application/json")]
    url = endpoint.url(written.path, model=upstream.model)
    return Request(url=url, headers=heads.sent(plain, given.items()), body=written.body)


@dataclass(slots=True, kw_only=True)
class Translation:
    call: Call
    reply: Reply
    client: Client
    recording: Recording
    # The names of what could not be carried, in their order; what the upstream says may add some.
    lost: dict[str, None]
    # When the vendor said that it is done.
    _over_at: float | None = field(default=None, init=False)
    _has_answered: bool = field(default=False, init=False)

    async def tell(self) -> None:
        if wrong := _wrong_address(self.reply):
            self.recording.end("upstream_error", **self.told(), error=wrong)
            raise self.refusal(wrong, "server", status=502)
        await (self.refuse() if self.reply.status >= 400 else self.carry())

    async def refuse(self) -> None:
        """An error of the vendor, in the caller's envelope."""
        failed = DIALECTS[self.reply.upstream.dialect].decode_error(self.reply.status, await self._beginning())
        self.recording.end("upstream_error", **self.told())
        headers = self.reply.response.headers
        passed = tuple((name, headers[name]) for name in PASSED_ERROR_HEADERS if name in headers)
        raise self.refusal(blotted(failed, self.reply.endpoint).message, failed.kind, headers=passed)

    async def _beginning(self) -> bytes:
        """As much of an error as came: half of it is better than none."""
        body = b""
        try:
            async for chunk in self._chunks():
                body += chunk
                if len(body) >= ERROR_BYTES:
                    break
        except ProviderError:
            pass
        return body

    async def carry(self) -> None:
        outlet = (Streamed if self.call.wants_stream else Whole)(self)
        failed: Failed | None = None
        try:
            async for events in self._events():
                failed = failed or next((event for event in events if isinstance(event, Failed)), None)
                await outlet.take(events)
        except ProviderError as error:
            failed = Failed(message=error.message, kind=error.kind)
            self.recording.end(_end_after(error), **self.told(), error=error.message)
            await outlet.take([failed])
        if failed is None:  # before its last words are sent, as in `carrying`
            self.recording.end("done", **self.told())
        await outlet.end()
        self.recording.end("upstream_error", **self.told())

    async def _events(self) -> AsyncIterator[list[Event]]:
        upstream = self.reply.upstream
        decoder = DIALECTS[upstream.dialect].stream_decoder(upstream.provider.name)
        async for chunk in self._chunks():
            yield [self._seen(event) for event in decoder.feed(chunk)]
        yield [self._seen(event) for event in decoder.close()]
        if not self._has_answered:
            raise self._fault("The upstream's answer is none in its language: check its base URL and its dialect.")
        if self._over_at is None:
            raise Cut("The upstream stopped in the middle of its answer.", provider=upstream.provider.name)

    def _seen(self, event: Event) -> Event:
        if self._over_at is None and isinstance(event, Ended | Failed):
            self._over_at = self.call.loop.time()
        self._has_answered = self._has_answered or not isinstance(event, Started | Skipped)
        if isinstance(event, MediaPiece | OtherPiece):
            self.lost[_named(LossCode.PART_NOT_CARRIED, _kind(event))] = None
        return blotted(event, self.reply.endpoint) if isinstance(event, Failed) else event

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The reply in plain bytes; the record has it as it came."""
        try:
            unpacking = Unpacking(self.reply.response.headers.get("content-encoding", ""))
            chunk = self.reply.first or await self._next()
            while chunk:
                self.recording.reply(chunk)
                yield unpacking.feed(chunk)
                chunk = await self._next()
        except UnknownEncoding as error:
            raise self._fault(f"The upstream's answer is compressed as {error}, which is not read here.") from None
        except Unreadable as error:
            raise self._fault(f"The upstream's answer cannot be unpacked: {error}.") from None

    def _fault(self, message: str) -> VendorFault:
        return VendorFault(message, provider=self.reply.upstream.provider.name)

    async def _next(self) -> bytes:
        """Counts may follow the end of an answer, but nobody waits long for them, and no trouble matters any more."""
        if self._over_at is None:
            return await self.reply.next()
        try:
            async with asyncio.timeout_at(self._over_at + answers.LINGER_SECONDS):
                return await self.reply.next()
        except (TimeoutError, Cut):
            return b""

    def told(self) -> dict[str, Any]:
        kept = heads.kept(self.reply.response.raw_headers)
        lost = {"not_carried": self.not_carried} if self.lost else {}
        return {"status": self.reply.status, "headers": kept, "provider": self.reply.upstream.provider.name, **lost}

    def refusal(
        self, message: str, kind: ErrorKind, *, status: int = 0, headers: tuple[tuple[str, str], ...] = ()
    ) -> Refusal:
        lost = ((NOT_CARRIED, self.not_carried),) if self.lost else ()
        return Refusal(message, kind, status=status, headers=(*headers, *lost))

    @property
    def not_carried(self) -> str:
        return ", ".join(self.lost)[:MOST_NAMED]

    def headers(self) -> list[tuple[bytes, bytes]]:
        lost = [(NOT_CARRIED.encode(), self.not_carried.encode())] if self.lost else []
        ids = [pair for pair in heads.returned(self.reply.response.raw_headers) if pair[0].endswith(b"request-id")]
        return [*ids, *lost, *our_headers(self.call)]

    @property
    def reply_id(self) -> str:
        return BEGINNINGS.get(self.call.address.dialect, "") + self.call.exchange.hex


def _wrong_address(reply: Reply) -> str:
    """As where the languages are the same: whoever followed it would show the operator's key to a stranger."""
    if 300 <= reply.status < 400:
        return "The upstream sends us to another address: check its base URL."
    if reply.status < 400 and reply.response.content_type == "text/html":
        return "The upstream answers with a web page: check its base URL."
    return ""


def _kind(piece: MediaPiece | OtherPiece) -> str:
    if isinstance(piece, MediaPiece):
        return piece.media_type or "media"
    return string(piece.data.get("type")) or next(iter(piece.data), "unknown")


def _end_after(error: ProviderError) -> str:
    if error.kind == "timeout":
        return "timeout"
    return "upstream_cut" if isinstance(error, Cut) else "upstream_error"


class Streamed:
    """The reply as a stream: of events, or for Gemini's callers that did not ask for these, one array in pieces."""

    def __init__(self, translation: Translation) -> None:
        self.of = translation
        call = translation.call
        self.encoder: StreamEncoder = DIALECTS[call.address.dialect].stream_encoder(
            model=call.model,
            reply_id=translation.reply_id,
            created=int(time.time()),
            with_usage=call.address.dialect != CHAT or bool(obj(call.asked.get("stream_options")).get("include_usage")),
        )
        self.is_array = call.address.dialect == GEMINI and "alt=sse" not in call.query
        self._elements = 0

    async def take(self, events: Sequence[Event]) -> None:
        await self._begin()
        if written := b"".join(map(self.encoder.feed, events)):
            await self.of.client.write(self._shaped(written))

    async def end(self) -> None:
        await self._begin()
        rest = self._shaped(self.encoder.end())
        if self.is_array:
            rest += b"]" if self._elements else b"[]"
        await self.of.client.write(rest, is_last=True)

    async def _begin(self) -> None:
        client = self.of.client
        if client.has_begun:
            return
        kind = b"application/json" if self.is_array else b"text/event-stream; charset=utf-8"
        headers = [(b"content-type", kind), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        keepalive = 0 if self.is_array else settings.PARLEY_RELAY_KEEPALIVE_SECONDS
        sign = EMPTY_LINE if self.of.call.address.dialect == GEMINI else COMMENT
        await client.begin(200, headers + self.of.headers(), keepalive=keepalive, sign=sign)

    def _shaped(self, written: bytes) -> bytes:
        if not self.is_array:
            return written
        elements = [line[6:] for line in written.split(b"\n") if line.startswith(b"data: ")]
        pieces = [(b"," if self._elements + place else b"[") + piece for place, piece in enumerate(elements)]
        self._elements += len(elements)
        return b"\n".join(pieces)


class Whole:
    """The reply in one piece, once the upstream is done; a failure becomes the status."""

    def __init__(self, translation: Translation) -> None:
        self.of = translation
        upstream = translation.reply.upstream
        self.assembler = Assembler(provider=upstream.provider.name, model=translation.call.model)

    async def take(self, events: Sequence[Event]) -> None:
        self.assembler.feed_all(events)

    async def end(self) -> None:
        if failed := self.assembler.failed:
            reason = "upstream_error"
            self.of.recording.end(reason, **self.of.told(), error=failed.message)
            raise self.of.refusal(failed.message, failed.kind)
        dialect = DIALECTS[self.of.call.address.dialect]
        reply = dialect.encode_reply(self.assembler.output(), reply_id=self.of.reply_id, created=int(time.time()))
        body = as_bytes(reply)
        await self.of.client.begin(200, json_headers(body) + self.of.headers())
        await self.of.client.write(body, is_last=True)
