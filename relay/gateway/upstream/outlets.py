"""Output of translated replies: as a stream of events, or whole at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.conf import settings

from history.answers.assembly import Assembler
from history.answers.events import Event, Skipped, Started
from history.dialects import DIALECTS, StreamEncoder
from history.dialects.json_access import as_bytes
from relay.gateway.call.client import COMMENT, EMPTY_LINE
from relay.gateway.call.response_headers import json_headers

if TYPE_CHECKING:
    from relay.gateway.upstream.translating import Translation


def _says_something(event: Event) -> bool:
    if isinstance(event, Started):
        return bool(event.model or event.request_id)
    return not isinstance(event, Skipped)


class StreamedReply:
    """The reply as a stream of events, or as one array in pieces for callers that expect that."""

    def __init__(self, translation: Translation) -> None:
        self.of = translation
        call = translation.call
        self.encoder: StreamEncoder = DIALECTS[call.address.dialect].stream_encoder(
            model=call.model,
            reply_id=translation.reply_id,
            created=int(time.time()),
            with_usage=call.address.api.wants_stream_usage(call.asked),
            tools=translation.asked.tools,
        )
        self.is_array = call.address.api.wants_array(call.query)
        self._elements = 0

    async def take(self, events: Sequence[Event]) -> None:
        """The stream begins with the first thing that can be read: rubbish becomes an error with a status instead."""
        if not self.of.client.has_begun and not any(map(_says_something, events)):
            return
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
        sign = COMMENT if self.of.call.address.api.allows_comments else EMPTY_LINE
        await client.begin(200, headers + self.of.headers(), keepalive=keepalive, sign=sign)

    def _shaped(self, written: bytes) -> bytes:
        if not self.is_array:
            return written
        elements = [line[6:] for line in written.split(b"\n") if line.startswith(b"data: ")]
        pieces = [(b"," if self._elements + place else b"[") + piece for place, piece in enumerate(elements)]
        self._elements += len(elements)
        return b"\n".join(pieces)


class WholeReply:
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
            await self.of.recording.end(reason, **self.of.told(), error=failed.message)
            raise self.of.refusal(failed.message, failed.kind)
        dialect = DIALECTS[self.of.call.address.dialect]
        reply = dialect.encode_reply(
            self.assembler.output(), reply_id=self.of.reply_id, created=int(time.time()), tools=self.of.asked.tools
        )
        body = as_bytes(reply)
        await self.of.client.begin(200, json_headers(body) + self.of.headers())
        await self.of.client.write(body, is_last=True)
