"""The end of a relayed reply: whether its final event was read, and whether the client has received it.

A reply whose final event was delivered is complete, no matter which side closes the connection and when. The dialect
knows its final events (`history.dialects.finality`).
"""

from __future__ import annotations

import asyncio

from history.dialects import DIALECTS
from history.dialects.finality import FinalEventScanner, Finality
from relay.errors import Cut
from relay.gateway.call.bodies import UnknownEncoding, Unreadable
from relay.gateway.call.calls import Call
from relay.gateway.call.client import Client
from relay.gateway.replies.unpacking import BoundedUnpacking
from relay.gateway.upstream.dialing import Reply

# How long to wait for the upstream to close after its final event, so that its connection can be used again.
CLOSING_SECONDS = 0.25


class ReplyEnd:
    """Fed the bytes of a reply as they pass. A whole JSON reply has no final event: it ends with its connection."""

    __slots__ = ("_over_at", "_scanner", "_unpacking", "is_delivered")

    def __init__(self, call: Call, reply: Reply, dialect: str) -> None:
        self.is_delivered = False
        self._over_at: float | None = None
        self._unpacking: BoundedUnpacking | None = None
        self._scanner: FinalEventScanner | None = None
        # Some servers stream without the right content type; JSON is the one thing that is certainly not a stream.
        is_stream = reply.is_stream or (call.wants_stream and "json" not in reply.response.content_type)
        if call.address.kind == "chat" and is_stream and reply.status < 400:
            self._scanner = FinalEventScanner(DIALECTS[dialect].FINAL_MARKS, DIALECTS[dialect].finality)

    def unpack(self, encoding: str) -> None:
        try:
            self._unpacking = BoundedUnpacking(encoding)
        except UnknownEncoding:
            self._scanner = None

    def read(self, chunk: bytes) -> None:
        if self._scanner is None:
            return
        if self._unpacking is None:
            self._scanner.feed(chunk)
            return
        try:
            for piece in self._unpacking.pieces(chunk):
                self._scanner.feed(piece)
        except Unreadable:
            self._scanner = None

    @property
    def is_complete(self) -> bool:
        return self._scanner is not None and self._scanner.state >= Finality.COMPLETE

    @property
    def is_over(self) -> bool:
        return self._scanner is not None and self._scanner.state is Finality.OVER

    def note_delivery(self, client: Client) -> None:
        """All that was read so far has been handed to the client."""
        if not client.is_gone:
            self.is_delivered = self.is_complete
        elif not self.is_complete:
            self.is_delivered = False

    async def next(self, reply: Reply) -> bytes:
        """The next bytes of the reply. After the final event no trouble with the connection matters."""
        if not self.is_complete:
            return await reply.next()
        try:
            if not self.is_over:
                return await reply.next()
            if self._over_at is None:
                self._over_at = reply.loop.time()
            async with asyncio.timeout_at(self._over_at + CLOSING_SECONDS):
                return await reply.next()
        except (TimeoutError, Cut):
            return b""
