"""Recording of calls in the journal: a few microseconds per line, no exceptions.

Of a key with limits, and where a reply is not recorded, the reply is kept for a moment as well, to see how many tokens
were used. Everything else is counted by whoever digests the journal.
"""

from __future__ import annotations

import logging
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from history.dialects import DIALECTS
from history.entries import Usage
from history.models import ApiKey
from history.record import counters
from relay.gateway.call.calls import Call
from relay.gateway.call.headers import Pairs
from relay.gateway.journal.records import Accepted, Ended, without_credentials
from relay.gateway.journal.writer import WITHOUT_BODIES, WITHOUT_REPLIES, Journal, Losses
from relay.gateway.limits import rate_limits, usage_counters
from relay.gateway.references.issued_ids import IssuedIdScanner, scanner_for
from relay.gateway.replies.edges import MOST_PLAIN, Edges, ReplyCopy
from relay.gateway.replies.usage import count_other_usage, count_usage, read_answer_id
from relay.gateway.routing.routes import Upstream
from relay.runtime.parsing import parse_apart
from relay.usage.amounts import Use
from relay.usage.prices import cost_of, price_of

logger = logging.getLogger(__name__)

OFF, NO_REPLIES = "off", "no_replies"
NOTHING = Decimal(0)


def mode_of(key: ApiKey) -> str:
    return key.recording if settings.CHAT_HISTORY_ENABLED else OFF


_journal: Journal | None = None


def journal() -> Journal:
    """The one of this process."""
    global _journal
    if _journal is None:
        folder = Path(settings.PARLEY_DATA_DIR) / "journal"
        _journal = Journal(folder, most_bytes=settings.PARLEY_JOURNAL_MB * 1024 * 1024)
    return _journal


def untold() -> Losses:
    """What this process could not keep, and its journal could not say yet."""
    return _journal.untold if _journal is not None else Losses()


def begin_anew() -> None:
    """Leave what is written to its readers: at the end of a process, or when the settings have changed."""
    global _journal
    if _journal is not None:
        _journal.close()
    _journal = None


class Recording:
    """One call in the journal, from before it is sent until it has ended, once."""

    __slots__ = (
        *("_has_ended", "_instead", "call", "cost", "edges", "encoding", "first_byte_at", "is_counted_here", "is_kept"),
        *("is_assumed_price", "journal", "names", "size", "upstream", "usage"),
    )

    def __init__(self, call: Call) -> None:
        self.call = call
        self.journal = journal()
        self.is_kept = self.is_counted_here = self.is_assumed_price = self._has_ended = False
        self.edges: Edges | None = None
        self.encoding = ""
        self.names: IssuedIdScanner | None = None
        self.first_byte_at: float | None = None
        self.size = 0
        self.upstream: Upstream | None = None
        self.usage: Usage | None = None
        self.cost = NOTHING
        self._instead: dict[str, str] | None = None

    def accept(self, upstream: Upstream) -> None:
        call, self.upstream = self.call, upstream
        if call.recording != OFF:
            self.is_kept = self.journal.accept(_accepted(call, upstream), call.told)
        is_digested = self.is_kept and not call.is_limited and call.recording not in WITHOUT_REPLIES
        kind = call.address.kind
        self.is_counted_here = not is_digested if kind == "chat" else _is_counted_unrecorded(call)
        if self.is_counted_here:
            self.edges = ReplyCopy()
        elif kind == "other" or DIALECTS[upstream.dialect].HTTP_API.stores_answers:
            self.edges = Edges()
        self.names = scanner_for(call, upstream.dialect)

    def answered_by(self, upstream: Upstream) -> None:
        """Not the one that was asked first: its language, its prices."""
        self.upstream = upstream
        self._instead = {"provider": upstream.provider.name, "model": upstream.model, "dialect": upstream.dialect}
        self.edges = self.edges or Edges()
        self.names = scanner_for(self.call, upstream.dialect)

    def compressed(self, encoding: str) -> None:
        """The upstream was asked for plain bytes, and sends others all the same."""
        self.encoding = encoding
        if self.names is not None:
            self.names.unpack(encoding)

    def reply(self, chunk: bytes) -> None:
        """Bytes of the upstream, untouched."""
        if not self.size:
            self.first_byte_at = time.time()
        self.size += len(chunk)
        if self.edges is not None:
            self.edges.add(chunk)
        if self.names is not None:
            self.names.add(chunk)
        if self.is_kept:
            self.journal.reply(self.call.exchange, chunk)

    async def end(
        self, reason: str, *, status: int = 0, headers: Pairs | None = None, error: str = "", **metadata: Any
    ) -> None:
        if self._has_ended:
            return
        is_used = self.size > 0 and status < 400 and self.call.address.kind != "count"
        if is_used and self.is_counted_here:
            await self._try_to_count(is_done=reason == "done")
        self._has_ended = True
        counters.ended["relay", reason] += 1
        rate_limits.settle(self.call)
        if self._instead is not None:
            metadata |= self._instead
        if self.usage is not None:
            metadata["cost"] = str(self.cost)
            if self.is_assumed_price:
                metadata["price"] = "assumed"
        if self.call.recording == NO_REPLIES and self.edges is not None and (name := read_answer_id(self.beginning)):
            metadata["reply_id"] = name
        if self.is_kept:
            self.journal.end(
                Ended(
                    exchange=self.call.exchange,
                    at=time.time(),
                    reason=reason,
                    status=status,
                    first_byte_at=self.first_byte_at,
                    attempts=self.call.attempts,
                    response_headers=headers or self._encoding_header(),
                    is_counted=self.is_counted_here or not is_used,
                    usage_hint=_hint(self.usage),
                    reply_size=self.size,
                    # In the vendor's words, once it has said anything; of a reply that is not kept, neither are they.
                    error="" if self.size and self.call.recording in WITHOUT_REPLIES else error,
                    metadata=metadata,
                )
            )

    @property
    def beginning(self) -> bytes:
        """Of the reply as it can be read."""
        return self.edges.beginning(self.encoding) if self.edges is not None else b""

    def _encoding_header(self) -> Pairs:
        """All that must be known of a reply whose caller left in the middle of it."""
        return [("content-encoding", self.encoding)] if self.encoding else []

    async def _try_to_count(self, *, is_done: bool) -> None:
        # A few compressed bytes may be very many.
        size = MOST_PLAIN if self.encoding else self.size
        try:
            self.usage = await parse_apart(size, self._read_usage, is_done=is_done)
            self._count()
        except Exception:  # the reply is on its way: whatever a count trips over, its end is told and written
            logger.exception("What the call %s used cannot be counted.", self.call.name)

    def _read_usage(self, *, is_done: bool) -> Usage | None:
        upstream, call = self.upstream, self.call
        if upstream is None or not isinstance(self.edges, ReplyCopy):
            return None
        if call.address.kind != "chat":
            return count_other_usage(upstream.dialect, self.edges, encoding=self.encoding)
        return count_usage(
            upstream.dialect,
            self.edges,
            encoding=self.encoding,
            request_size=len(call.told),
            reply_size=self.size,
            is_done=is_done,
        )

    def _count(self) -> None:
        upstream, call = self.upstream, self.call
        if upstream is not None and self.usage is not None:
            name, model = upstream.provider.name, upstream.model
            has_money_budget = rate_limits.has_money_budget(call)
            self.cost = cost_of(self.usage, provider=name, model=model, has_money_budget=has_money_budget)
            self.is_assumed_price = has_money_budget and price_of(provider=name, model=model) is None
            tokens = self.usage.input_tokens + self.usage.output_tokens
            usage_counters.note(call.key, tokens, self.cost)
            call.spent = Use(0, tokens, self.cost)


def _is_counted_unrecorded(call: Call) -> bool:
    """Embeddings, pictures and sounds of a key with limits; what is fetched again was paid for before."""
    return call.is_limited and call.address.kind == "other" and call.method == "POST"


def _accepted(call: Call, upstream: Upstream) -> Accepted:
    naming, is_bare = call.naming, call.recording == WITHOUT_BODIES
    return Accepted(
        exchange=call.exchange,
        at=call.at,
        key=call.key.id,
        owner=call.key.owner_id,
        recording=call.recording,
        dialect=call.address.dialect,
        kind=call.address.kind,
        method=call.method,
        path=call.path,
        query="" if is_bare else call.query,
        headers=_of_the_program(call.pairs) if is_bare else without_credentials(call.pairs),
        body_size=len(call.told),
        provider=upstream.provider.name,
        model=upstream.model,
        stream=call.wants_stream,
        session=naming.session,
        recognised_by=naming.recognised_by,
        new_session=naming.is_new,
        removed_session_field=call.has_lost_session_field,
        peer=call.peer,
        upstream_dialect=upstream.dialect,
    )


def _of_the_program(pairs: Pairs) -> Pairs:
    """Of a call of which only times and counts are kept: which program it was, and the how manieth try."""
    return [pair for pair in pairs if pair[0] in ("user-agent", "x-stainless-retry-count")]


def _hint(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    counts = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    return {"source": usage.source, **{name: getattr(usage, name) for name in counts}}
