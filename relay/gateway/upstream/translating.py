"""Translation of calls between dialects, event by event.

The request is read into entries and written anew for the upstream; its stream becomes events, and these the stream or
the whole reply that the caller's SDK expects. The upstream is always asked for a stream: so a caller that wants none
still gets what there was when it breaks off. What cannot be carried is named in a header and in the record; what a
stream turns out to hold after its headers are sent, in the record alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil
from typing import Any

from history.answers.assembly import Assembler
from history.answers.events import Ended, ErrorKind, Event, Failed, MediaPiece, OtherPiece, Skipped, Started
from history.context.tokens import estimate_context
from history.dialects import DIALECTS, DecodedRequest, DialectError, context_of
from history.dialects.json_access import as_bytes, string
from history.dialects.types import joined
from relay.errors import Cut, ProviderError, VendorFault
from relay.gateway.call import headers as heads
from relay.gateway.call.bodies import UnknownEncoding, Unreadable
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.call.error_addresses import hide_addresses
from relay.gateway.call.errors import UNREADABLE, Refusal, unreadable_reply
from relay.gateway.call.response_headers import json_headers, our_headers
from relay.gateway.recording import Recording
from relay.gateway.references import continuations
from relay.gateway.replies.unpacking import Unpacking
from relay.gateway.routing.routes import Upstream
from relay.gateway.upstream import not_carried
from relay.gateway.upstream.dialing import Reply, dial
from relay.gateway.upstream.endings import ReplyEnd
from relay.gateway.upstream.forwarding import pass_back, request
from relay.gateway.upstream.outlets import StreamedReply, WholeReply
from relay.providers import event_stream
from relay.providers.base import CallNotes
from relay.providers.endpoints import Endpoint
from relay.providers.event_stream import mask_secrets
from relay.providers.http import HttpProvider
from relay.providers.raw_http import RawRequest
from relay.runtime.parsing import StreamParser, parse_apart

NOT_CARRIED = "x-parley-not-carried"
TRANSLATED_TO = "x-parley-translated-to"
MOST_NAMED = 1_000
# Of a refusal that is worth telling in another language.
PASSED_ERROR_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
ERROR_BYTES = 64 * 1024


async def translate(call: Call, upstreams: Sequence[Upstream], client: Client, recording: Recording) -> None:
    """Of several upstreams some may speak the caller's language: from those the bytes pass as they are."""
    notes, dialect = CallNotes(), call.address.dialect
    decoded = cache(lambda: _decoded(call))

    def passes(upstream: Upstream) -> bool:
        """What came before has to be written into the request, in any language."""
        return upstream.is_native(dialect) and call.earlier is None

    def make(call: Call, upstream: Upstream, endpoint: Endpoint) -> RawRequest:
        if passes(upstream):
            return request(call, upstream, endpoint)
        return _request(decoded(), upstream, endpoint, notes)

    reply = await dial(call, upstreams, make)
    if reply.upstream is not upstreams[0]:
        recording.answered_by(reply.upstream)
    if passes(reply.upstream):
        await pass_back(call, reply, client, recording)
        return
    lost = await parse_apart(len(call.told), lambda: dict.fromkeys(not_carried.losses_of_request(decoded(), notes)))
    asked = decoded()
    translation = Translation(call=call, reply=reply, client=client, recording=recording, asked=asked, lost=lost)
    try:
        await translation.tell()
    finally:
        reply.response.close()


async def count(call: Call, client: Client, recording: Recording) -> None:
    """An upstream of another language cannot count for this caller: our estimate is told in its place."""
    tokens = await parse_apart(len(call.told), _estimated, call)
    body = as_bytes(call.address.api.encode_token_count(tokens))
    await client.begin(200, json_headers(body) + our_headers(call))
    await client.write(body, is_last=True)
    await recording.end("done", status=200, estimated=True)


def _estimated(call: Call) -> int:
    asked = _decoded(call)
    return estimate_context(context_of(asked).entries, system=asked.system, tools=asked.tools)


def _decoded(call: Call) -> DecodedRequest:
    dialect = call.address.dialect
    try:
        body = call.all_asked()
        asked = DIALECTS[dialect].decode_request(body)
    except (DialectError, ValueError) as error:
        raise Refusal(f"The request cannot be read: {error}.") from None
    call.lasting_system = asked.system.removeprefix(string(body.get("instructions"))).strip()
    if call.earlier is not None:
        call.lasting_system = joined((call.earlier.system, call.lasting_system))
        asked = continuations.with_earlier(asked, call.earlier)
    return replace(asked, model=call.model, options=replace(asked.options, stream=True))


def _request(asked: DecodedRequest, upstream: Upstream, endpoint: Endpoint, notes: CallNotes) -> RawRequest:
    options = replace(asked.options, model=upstream.model, media=asked.blobs.__getitem__)
    written = upstream.provider.request_for(context_of(asked), options, notes)
    given = endpoint.request_headers(written.options.switches)
    plain = [("content-type", "application/json"), ("accept", "text/event-stream, application/json")]
    url = endpoint.url(written.path, model=upstream.model)
    return RawRequest(url=url, headers=heads.sent(plain, given.items()), body=written.body)


@dataclass(slots=True, kw_only=True)
class Translation:
    call: Call
    reply: Reply
    client: Client
    recording: Recording
    asked: DecodedRequest
    # The names of what could not be carried, in their order; what the upstream says may add some.
    lost: dict[str, None]
    # When the vendor said that it is done.
    _over_at: float | None = field(default=None, init=False)
    _has_answered: bool = field(default=False, init=False)

    async def tell(self) -> None:
        if 300 <= self.reply.status < 400:
            wrong = "The upstream sends us to another address: check its base URL."
            await self.recording.end("upstream_error", **self.told(), error=wrong)
            raise self.refusal(wrong, "server", status=502)
        if "html" in self.reply.response.content_type and self.reply.status < 300:
            raise await self._unreadable(await self.reply.problem())
        await (self.refuse() if self.reply.status >= 400 else self.carry())

    async def refuse(self) -> None:
        """An error of the vendor, in the caller's envelope."""
        failed = DIALECTS[self.reply.upstream.dialect].decode_error(self.reply.status, await self._beginning())
        await self.recording.end("upstream_error", **self.told())
        headers = self.reply.response.headers
        passed = tuple((name, headers[name]) for name in PASSED_ERROR_HEADERS if name in headers)
        if failed.retry_after is not None and "retry-after" not in headers:
            passed = (*passed, ("retry-after", str(ceil(failed.retry_after))))
        failed = mask_secrets(failed, self.reply.endpoint)
        provider = self.reply.upstream.provider
        if isinstance(provider, HttpProvider):
            failed = provider.explain(failed)
        message = hide_addresses(failed.message, self.reply.endpoint)
        raise self.refusal(message, failed.kind, headers=passed)

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
        outlet = (StreamedReply if self.call.wants_stream else WholeReply)(self)
        failed: Failed | None = None
        upstream = self.reply.upstream
        answer = Assembler(provider=upstream.provider.name, model=self.call.model)
        try:
            async for events in self._events():
                answer.feed_all(events)
                failed = failed or next((event for event in events if isinstance(event, Failed)), None)
                await outlet.take(events)
        except ProviderError as error:
            if isinstance(error, _NoAnswer) and not self.client.has_begun:
                raise await self._unreadable(error.message) from None
            await self.recording.end(_end_after(error), **self.told(), error=error.message)
            if not self.client.has_begun:
                raise self.refusal(error.message, error.kind) from None
            if isinstance(error, Cut):
                # As where the languages are the same: clients try again after a cut, and give up after an error.
                self.client.cut()
                return
            failed = Failed(message=error.message, kind=error.kind)
            await outlet.take([failed])
        if failed is None:  # before its last words are sent, as in `carrying`
            continuations.remember(self.call, self.asked, answer.output())
            await self.recording.end("done", **self.told())
        await outlet.end()
        await self.recording.end("upstream_error", **self.told())

    async def _events(self) -> AsyncIterator[list[Event]]:
        upstream = self.reply.upstream
        decoder = DIALECTS[upstream.dialect].stream_decoder(upstream.provider.name)
        parser = StreamParser(decoder.feed)
        async for chunk in self._chunks():
            yield [self._seen(event) for event in await parser.feed(chunk)]
        yield [self._seen(event) for event in await parser.close(decoder.close)]
        if not self._has_answered:
            raise _NoAnswer(
                f"The provider {upstream.provider.name} sent something that is no answer of a model. "
                "Check its base URL and its dialect."
            )
        if self._over_at is None:
            raise Cut("The upstream stopped in the middle of its answer.", provider=upstream.provider.name)

    def _seen(self, event: Event) -> Event:
        if self._over_at is None and isinstance(event, Ended | Failed):
            self._over_at = self.call.loop.time()
        self._has_answered = self._has_answered or not isinstance(event, Started | Skipped)
        if isinstance(event, MediaPiece | OtherPiece):
            self.lost[not_carried.loss_of_reply(event)] = None
        if not isinstance(event, Failed):
            return event
        failed = mask_secrets(event, self.reply.endpoint)
        return replace(failed, message=hide_addresses(failed.message, self.reply.endpoint))

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The reply in plain bytes; the record has it as it came."""
        try:
            encoding = self.reply.response.headers.get("content-encoding", "")
            self.recording.compressed(encoding)
            unpacking, end = Unpacking(encoding), ReplyEnd(self.call, self.reply, self.reply.upstream.dialect)
            chunk = self.reply.first or await self._next(end)
            while chunk:
                self.recording.reply(chunk)
                for plain in unpacking.in_slices(chunk):
                    end.read(plain)
                    yield plain
                chunk = await self._next(end)
        except UnknownEncoding as error:
            raise self._fault(f"The upstream's answer is compressed as {error}, which is not read here.") from None
        except Unreadable as error:
            raise self._fault(f"The upstream's answer cannot be unpacked: {error}.") from None

    async def _unreadable(self, problem: str) -> Refusal:
        await self.recording.end(UNREADABLE, **self.told(), error=problem)
        refusal = unreadable_reply(problem)
        refusal.headers += ((NOT_CARRIED, self.not_carried),) if self.lost else ()
        return refusal

    def _fault(self, message: str) -> VendorFault:
        return VendorFault(message, provider=self.reply.upstream.provider.name)

    async def _next(self, end: ReplyEnd) -> bytes:
        """Counts may follow the end of an answer: the client waits for them, but not long."""
        if self._over_at is None:
            return await end.next(self.reply)
        try:
            async with asyncio.timeout_at(self._over_at + event_stream.LINGER_SECONDS):
                return await end.next(self.reply)
        except (TimeoutError, Cut):
            return b""

    def told(self) -> dict[str, Any]:
        kept = heads.kept(self.reply.response.raw_headers)
        lost = {"not_carried": self.not_carried} if self.lost else {}
        # A client may continue by that id: the digester files it with the answer.
        named = {"response_id": self.reply_id} if self.call.address.api.stores_answers else {}
        provider = self.reply.upstream.provider.name
        return {"status": self.reply.status, "headers": kept, "provider": provider, **lost, **named}

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
        translated = (TRANSLATED_TO.encode(), self.reply.upstream.dialect.encode())
        return [*ids, *lost, translated, *our_headers(self.call)]

    @property
    def reply_id(self) -> str:
        return self.call.address.api.reply_id_prefix + self.call.exchange.hex


class _NoAnswer(VendorFault):
    """What came cannot be read as an answer."""


def _end_after(error: ProviderError) -> str:
    if isinstance(error, _NoAnswer):
        return UNREADABLE
    if error.kind == "timeout":
        return "timeout"
    return "upstream_cut" if isinstance(error, Cut) else "upstream_error"
