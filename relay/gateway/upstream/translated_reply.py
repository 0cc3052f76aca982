"""Translated replies: the upstream's stream becomes events, and these a reply in the caller's dialect.

What cannot be carried is named in a header and in the record; what a stream turns out to hold after its headers are
sent is named in the record alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from django.conf import settings

from history.answers.assembly import Assembler
from history.answers.events import (
    AnswerEnded,
    AnswerFailed,
    AnswerStarted,
    Event,
    MediaPiece,
    OtherPiece,
    UnreadableEvent,
)
from history.dialects import DIALECTS, DecodedRequest
from history.dialects.json_access import as_bytes
from relay.errors import Cut, ProviderError, VendorFault
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.call.decompression import Decompression, UnknownEncoding
from relay.gateway.call.errors import UNREADABLE, Refusal, hide_addresses, unreadable_reply
from relay.gateway.call.headers import headers_for_client
from relay.gateway.call.json_scanner import Unreadable
from relay.gateway.recording import Recording
from relay.gateway.references import continuations
from relay.gateway.upstream.forwarding import REDIRECTED, ReplyEnd
from relay.gateway.upstream.translation_losses import loss_of_reply
from relay.gateway.upstream.upstream_calls import Reply
from relay.providers import event_stream
from relay.providers.event_stream import mask_secrets
from relay.runtime.asgi import Headers
from relay.runtime.event_loop import StreamParser

NOT_CARRIED = "x-parley-not-carried"
TRANSLATED_TO = "x-parley-translated-to"
MOST_LOSS_CHARS = 1_000
# Of an upstream's refusal.
PASSED_ERROR_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
ERROR_BYTES = 64 * 1024


@dataclass(slots=True)
class TranslatedReply:
    """`lost` are the names of what could not be carried; the reply may add some."""

    call: Call
    reply: Reply
    client: Client
    recording: Recording
    request: DecodedRequest
    lost: dict[str, None]
    # When the vendor sent the end of its answer.
    _over_at: float | None = field(default=None, init=False)
    _has_answered: bool = field(default=False, init=False)

    async def run(self) -> None:
        try:
            if 300 <= self.reply.status < 400:
                await self.end("upstream_error", error=REDIRECTED)
                raise Refusal(REDIRECTED, "server", status=502)
            if "html" in self.reply.response.content_type and self.reply.status < 300:
                raise await self._unreadable(await self.reply.problem())
            await (self._refuse() if self.reply.status >= 400 else self._carry())
        except Refusal as refusal:
            refusal.headers += self._loss_headers
            raise

    async def end(self, reason: str, *, error: str = "") -> None:
        lost = {"not_carried": not_carried} if (not_carried := self._not_carried) else {}
        # A client may continue by that id: the digester files it with the answer.
        named = {"response_id": self.call.reply_id} if self.call.address.api.stores_answers else {}
        await self.reply.record_end(self.recording, reason, error=error, **lost, **named)

    async def _refuse(self) -> None:
        """An error of the vendor, in the caller's dialect."""
        failed = DIALECTS[self.reply.upstream.dialect].decode_error(self.reply.status, await self._read_error())
        await self.end("upstream_error")
        headers = self.reply.response.headers
        passed = tuple((name, headers[name]) for name in PASSED_ERROR_HEADERS if name in headers)
        if failed.retry_after is not None and "retry-after" not in headers:
            passed = (*passed, ("retry-after", str(ceil(failed.retry_after))))
        failed = mask_secrets(failed, self.reply.endpoint)
        failed = self.reply.upstream.provider.explain(failed)
        message = hide_addresses(failed.message, self.reply.endpoint)
        raise Refusal(message, failed.kind, headers=passed)

    async def _read_error(self) -> bytes:
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

    async def _carry(self) -> None:
        upstream, stream = self.reply.upstream, StreamedReply(self) if self.call.wants_stream else None
        answer = Assembler(provider=upstream.provider.name, model=self.call.model)
        failed: AnswerFailed | None = None
        try:
            async for events in self._events():
                answer.feed_all(events)
                if stream is not None:
                    await stream.write(events)
            failed = answer.failed
        except ProviderError as error:
            if isinstance(error, _NoAnswer) and not self.client.has_begun:
                raise await self._unreadable(error.message) from None
            await self.end(_end_after(error), error=error.message)
            if stream is None or not self.client.has_begun:
                raise Refusal(error.message, error.kind) from None
            if isinstance(error, Cut):
                # As in forwarding: clients try again after a cut, and give up after an error.
                self.client.cut()
                return
            failed = AnswerFailed(message=error.message, kind=error.kind)
            await stream.write([failed])
        if failed is None:  # before the last bytes are sent, as in forwarding
            continuations.remember(self.call, self.request, answer.output())
            await self.end("done")
        if stream is not None:
            await stream.end()
        elif failed is not None:
            await self.end("upstream_error", error=failed.message)
            raise Refusal(failed.message, failed.kind)
        else:
            body = DIALECTS[self.call.address.dialect].encode_reply(
                answer.output(), reply_id=self.call.reply_id, created=int(time.time()), tools=self.request.tools
            )
            await self.client.send_json(200, as_bytes(body), self.headers)
        await self.end("upstream_error")

    async def _events(self) -> AsyncIterator[list[Event]]:
        upstream = self.reply.upstream
        decoder = DIALECTS[upstream.dialect].stream_decoder(upstream.provider.name)
        parser = StreamParser(decoder.feed)
        async for chunk in self._chunks():
            yield [self._observe(event) for event in await parser.feed(chunk)]
        yield [self._observe(event) for event in await parser.close(decoder.close)]
        if not self._has_answered:
            raise _NoAnswer(
                f"The provider {upstream.provider.name} sent an invalid response. Check its base URL and its dialect."
            )
        if self._over_at is None:
            raise Cut("The provider stopped before the end of its answer.", provider=upstream.provider.name)

    def _observe(self, event: Event) -> Event:
        """Note what the event says about the reply; of an error, the text that the caller may read."""
        if self._over_at is None and isinstance(event, AnswerEnded | AnswerFailed):
            self._over_at = self.call.loop.time()
        self._has_answered = self._has_answered or not isinstance(event, AnswerStarted | UnreadableEvent)
        if isinstance(event, MediaPiece | OtherPiece):
            self.lost[loss_of_reply(event)] = None
        if not isinstance(event, AnswerFailed):
            return event
        failed = mask_secrets(event, self.reply.endpoint)
        return replace(failed, message=hide_addresses(failed.message, self.reply.endpoint))

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The reply in plain bytes; the record has it as it came."""
        provider = self.reply.upstream.provider.name
        try:
            encoding = self.reply.response.headers.get("content-encoding", "")
            self.recording.set_encoding(encoding)
            decompression, end = Decompression(encoding), ReplyEnd(self.call, self.reply, self.reply.upstream.dialect)
            chunk = self.reply.first or await self._next(end)
            while chunk:
                self.recording.add(chunk)
                for plain in decompression.in_slices(chunk):
                    end.read(plain)
                    yield plain
                chunk = await self._next(end)
        except UnknownEncoding as error:
            text = f"The provider's response uses the content encoding {error}, which is not supported."
            raise VendorFault(text, provider=provider) from None
        except Unreadable as error:
            raise VendorFault(f"The provider's response cannot be decompressed: {error}.", provider=provider) from None

    async def _next(self, end: ReplyEnd) -> bytes:
        """Counts may follow the end of an answer: the client waits for them, but not long."""
        if self._over_at is None:
            return await end.next(self.reply)
        try:
            async with asyncio.timeout_at(self._over_at + event_stream.LINGER_SECONDS):
                return await end.next(self.reply)
        except (TimeoutError, Cut):
            return b""

    async def _unreadable(self, problem: str) -> Refusal:
        await self.end(UNREADABLE, error=problem)
        return unreadable_reply(problem)

    @property
    def _not_carried(self) -> str:
        return ", ".join(self.lost)[:MOST_LOSS_CHARS]

    @property
    def _loss_headers(self) -> tuple[tuple[str, str], ...]:
        return ((NOT_CARRIED, self._not_carried),) if self.lost else ()

    @property
    def headers(self) -> Headers:
        lost = [(name.encode(), value.encode()) for name, value in self._loss_headers]
        ids = [pair for pair in headers_for_client(self.reply.response.raw_headers) if pair[0].endswith(b"request-id")]
        translated = (TRANSLATED_TO.encode(), self.reply.upstream.dialect.encode())
        return [*ids, *lost, translated, *self.call.response_headers]


class _NoAnswer(VendorFault):
    """The reply cannot be read as an answer."""


def _end_after(error: ProviderError) -> str:
    if isinstance(error, _NoAnswer):
        return UNREADABLE
    if error.kind == "timeout":
        return "timeout"
    return "upstream_cut" if isinstance(error, Cut) else "upstream_error"


class StreamedReply:
    """The reply as a stream of events, or as one array in pieces for callers that expect that."""

    def __init__(self, reply: TranslatedReply) -> None:
        self.reply, self.client, call = reply, reply.client, reply.call
        self.api = call.address.api
        self.encoder = DIALECTS[call.address.dialect].stream_encoder(
            model=call.model,
            reply_id=call.reply_id,
            created=int(time.time()),
            with_usage=self.api.wants_stream_usage(call.fields),
            tools=reply.request.tools,
        )
        self.is_array = self.api.wants_array(call.query)
        self._elements = 0

    async def write(self, events: Sequence[Event]) -> None:
        """The stream begins with the first event that has content: rubbish becomes an error with a status instead."""
        if not self.client.has_begun and not any(map(_has_content, events)):
            return
        await self._begin()
        if encoded := b"".join(map(self.encoder.feed, events)):
            await self.client.write(self._shape(encoded))

    async def end(self) -> None:
        await self._begin()
        rest = self._shape(self.encoder.end())
        if self.is_array:
            rest += b"]" if self._elements else b"[]"
        await self.client.write(rest, is_last=True)

    async def _begin(self) -> None:
        if self.client.has_begun:
            return
        kind = b"application/json" if self.is_array else b"text/event-stream; charset=utf-8"
        headers = [(b"content-type", kind), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        keepalive = 0 if self.is_array else settings.PARLEY_RELAY_KEEPALIVE_SECONDS
        headers += self.reply.headers
        await self.client.begin(200, headers, keepalive=keepalive, allows_comments=self.api.allows_comments)

    def _shape(self, encoded: bytes) -> bytes:
        if not self.is_array:
            return encoded
        elements = [line[6:] for line in encoded.split(b"\n") if line.startswith(b"data: ")]
        pieces = [(b"," if self._elements + place else b"[") + piece for place, piece in enumerate(elements)]
        self._elements += len(elements)
        return b"\n".join(pieces)


def _has_content(event: Event) -> bool:
    if isinstance(event, AnswerStarted):
        return bool(event.model or event.request_id)
    return not isinstance(event, UnreadableEvent)
