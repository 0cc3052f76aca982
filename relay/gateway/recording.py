"""What the journal is told of a call. In the way of nothing: every line here is a few microseconds and raises nothing.

Besides the journal, the beginning and the end of a reply are kept for a moment: that is where a vendor says how many
tokens were used, which limits and costs want to know at once, whatever is recorded.
"""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from history import counters
from history.entries import Usage
from history.models import ApiKey
from relay.gateway.addresses import ANTHROPIC
from relay.gateway.calls import Call
from relay.gateway.headers import Pairs
from relay.gateway.journal import WITHOUT_REPLIES, Journal, Losses
from relay.gateway.records import Accepted, Ended
from relay.gateway.routes import Upstream
from relay.gateway.usage import Uncounted

OFF = "off"
EDGE_BYTES = 16 * 1024


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

    def __init__(self, call: Call) -> None:
        self.call = call
        self.journal = journal()
        self.is_kept = False
        self.first_byte_at: float | None = None
        self.size = 0
        self._head: list[bytes] = []
        self._tail: list[bytes] = []
        self._tail_size = 0
        self.upstream: Upstream | None = None
        self.uncounted: Uncounted | None = None
        self.usage: Usage | None = None
        self.cost = Decimal(0)
        self._has_ended = False
        self._instead: dict[str, str] = {}

    def accept(self, upstream: Upstream) -> None:
        call, self.upstream = self.call, upstream
        if call.recording == OFF:
            return
        self.is_kept = self.journal.accept(
            Accepted(
                exchange=call.exchange,
                at=call.at,
                key=call.key.id,
                owner=call.key.owner_id,
                recording=call.recording,
                dialect=call.address.dialect,
                kind=call.address.kind,
                method=call.method,
                path=call.path,
                query=call.query,
                headers=call.pairs,
                body=call.told,
                provider=upstream.provider.name,
                model=upstream.model,
                stream=call.wants_stream,
                session=call.naming.session,
                recognised_by=call.naming.recognised_by,
                new_session=call.naming.is_new,
                removed_session_field=call.has_lost_session_field,
                peer=call.peer,
                upstream_dialect=upstream.dialect,
            )
        )

    def answered_by(self, upstream: Upstream) -> None:
        """Not the one that was asked first: its language, its prices."""
        self.upstream = upstream
        self._instead = {"provider": upstream.provider.name, "model": upstream.model, "dialect": upstream.dialect}

    def reply(self, chunk: bytes) -> None:
        """Bytes of the upstream, untouched."""
        if self.first_byte_at is None:
            self.first_byte_at = time.time()
        if self.size < EDGE_BYTES:
            self._head.append(chunk)
        self.size += len(chunk)
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        if self._tail_size > 4 * EDGE_BYTES:
            self._tail = [self.tail]
            self._tail_size = EDGE_BYTES
        if self.is_kept:
            self.journal.reply(self.call.exchange, chunk)

    @property
    def head(self) -> bytes:
        return b"".join(self._head)[:EDGE_BYTES]

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail)[-EDGE_BYTES:]

    def end(
        self, reason: str, *, status: int = 0, headers: Pairs | None = None, error: str = "", **metadata: Any
    ) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        counters.ended["relay", reason] += 1
        self.uncounted = self._to_count(status)
        if self.uncounted is not None and not self._can_wait:
            self._count(self.uncounted)
        if self.is_kept:
            self.journal.end(
                Ended(
                    exchange=self.call.exchange,
                    at=time.time(),
                    reason=reason,
                    status=status,
                    first_byte_at=self.first_byte_at,
                    attempts=self.call.attempts,
                    response_headers=headers or [],
                    is_counted=self.uncounted is None,
                    usage_hint=_hint(self.usage),
                    error=error,
                    metadata=metadata | self._instead | ({"cost": str(self.cost)} if self.usage else {}),
                )
            )

    @property
    def _can_wait(self) -> bool:
        """Nobody is refused for what it used, and whoever digests it reads it anyway."""
        return self.is_kept and not self.call.is_limited and self.call.recording not in WITHOUT_REPLIES

    def _to_count(self, status: int) -> Uncounted | None:
        upstream, call = self.upstream, self.call
        if upstream is None or call.address.kind != "chat" or status >= 400 or not self.size:
            return None
        return Uncounted(
            upstream.dialect,
            self.head if upstream.dialect == ANTHROPIC else b"",
            self.tail,
            len(call.told),
            self.size,
            call.wants_stream,
            upstream.provider.name,
            upstream.model,
        )

    def _count(self, uncounted: Uncounted) -> None:
        self.usage = uncounted.usage()
        self.cost = uncounted.cost(self.usage)
        self.uncounted = None


def _hint(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    counts = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    return {"source": usage.source, **{name: getattr(usage, name) for name in counts}}
