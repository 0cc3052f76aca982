"""Recording of calls in the journal: a few microseconds per record, no exceptions.

For keys with limits, and for replies that are not recorded, the reply is copied to count its tokens. The digester
counts all others.
"""

import logging
import time
from dataclasses import dataclass, field
from decimal import Decimal

from django.conf import settings

from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.entries import Usage
from history.models import ApiKey
from history.record import counters
from relay.gateway import rate_limits
from relay.gateway.call.calls import Call
from relay.gateway.call.decompression import PlainReply
from relay.gateway.call.headers import Pairs
from relay.gateway.call.logins import LoginMask
from relay.gateway.journal.records import CallAccepted, CallEnded, without_credentials
from relay.gateway.journal.writer import WITHOUT_BODIES, WITHOUT_REPLIES, Journal, Losses
from relay.gateway.journal_settings import journal_folder, most_bytes
from relay.gateway.references.issued_ids import IssuedIdScanner, scanner_for
from relay.gateway.replies import COUNTS, MOST_PLAIN, ReplyCopy, read_answer_id, read_usage
from relay.gateway.routes import Upstream
from relay.runtime.event_loop import parse_apart
from relay.usage import counters as usage_counters
from relay.usage.prices import Use, cost_of, price_of

logger = logging.getLogger(__name__)

OFF, NO_REPLIES = "off", "no_replies"


def mode_of(key: ApiKey) -> str:
    return key.recording if settings.CHAT_HISTORY_ENABLED else OFF


def journal() -> Journal:
    return process_state.find(Journal) or process_state.keep(Journal(journal_folder(), most_bytes=most_bytes()))


def close_journal() -> None:
    """Leave the journal to its readers: at the end of a process, or when the settings have changed."""
    process_state.reset(Journal)


def unreported_losses() -> Losses:
    """What the journal of this process lost and could not report in itself yet."""
    opened = process_state.find(Journal)
    return opened.unreported if opened is not None else Losses()


@dataclass(slots=True)
class Recording:
    """One call in the journal, from before it is sent until it has ended, once."""

    call: Call
    journal: Journal = field(init=False, default_factory=journal)
    copy: ReplyCopy | None = None
    encoding: str = ""
    issued_ids: IssuedIdScanner | None = None
    first_byte_at: float | None = None
    size: int = 0
    upstream: Upstream | None = None
    usage: Usage | None = None
    cost: Decimal = Decimal(0)
    is_recorded: bool = False
    is_counted_here: bool = False
    is_assumed_price: bool = False
    list_price: Decimal = Decimal(0)
    _has_ended: bool = False
    _fallback: dict[str, str] = field(default_factory=dict)
    _mask: LoginMask | None = None
    _plain: PlainReply | None = None  # of a compressed reply that is masked

    def accept(self, upstream: Upstream) -> None:
        call, self.upstream = self.call, upstream
        if call.login is not None:
            self._mask = LoginMask(call.login.texts)
        if call.recording != OFF:
            body = call.body if call.login is None else call.login.mask_bytes(call.body)
            self.is_recorded = self.journal.accept(_accepted(call, upstream), body)
        kind = call.address.kind
        if kind == "chat":
            self.is_counted_here = not self.is_recorded or call.is_limited or call.recording in WITHOUT_REPLIES
        else:  # embeddings, images and audio of a key with limits; a GET repeats what was paid for before
            self.is_counted_here = call.is_limited and kind == "other" and call.method == "POST"
        if self.is_counted_here:
            self.copy = ReplyCopy([])
        elif kind == "other" or DIALECTS[upstream.dialect].HTTP_API.stores_answers:
            self.copy = ReplyCopy()
        self.issued_ids = scanner_for(call, upstream.dialect)

    def set_upstream(self, upstream: Upstream) -> None:
        """Another upstream answered than the first one: its dialect and its prices count."""
        self.upstream = upstream
        self._fallback = {
            "provider": upstream.provider.name,
            "model": self.call.mask(upstream.model),
            "dialect": upstream.dialect,
        }
        self._fallback["billing"] = upstream.billing
        self.copy = self.copy or ReplyCopy()
        self.issued_ids = scanner_for(self.call, upstream.dialect)

    def set_encoding(self, encoding: str) -> None:
        """The upstream was asked for plain bytes and compresses all the same."""
        if self._mask is not None:  # compressed bytes cannot be masked: the record gets them decompressed
            self._plain = PlainReply(encoding, most=MOST_PLAIN)
            return
        self.encoding = encoding
        if self.issued_ids is not None:
            self.issued_ids.decompress(encoding)

    def add(self, chunk: bytes) -> None:
        """Bytes of the reply as the upstream sent them; without the caller's login, if there is one."""
        if self.first_byte_at is None:
            self.first_byte_at = time.time()
        if self._mask is None:
            self._add(chunk)
            return
        for piece in (chunk,) if self._plain is None else self._plain.pieces(chunk):
            self._add(self._mask.feed(piece))

    def _add(self, chunk: bytes) -> None:
        if not chunk:
            return
        self.size += len(chunk)
        if self.copy is not None:
            self.copy.add(chunk)
        if self.issued_ids is not None:
            self.issued_ids.add(chunk)
        if self.is_recorded:
            self.journal.reply(self.call.exchange, chunk)

    async def end(
        self, reason: str, *, status: int = 0, headers: Pairs | None = None, error: str = "", **metadata: object
    ) -> None:
        if self._has_ended:
            return
        if self._mask is not None:
            self._add(self._mask.close())
        is_used = self.size > 0 and status < 400 and self.call.address.kind != "count"
        if is_used and self.is_counted_here:
            await self._try_to_count(is_done=reason == "done")
        self._has_ended = True
        counters.ended["relay", reason] += 1
        rate_limits.settle(self.call)
        if not self.is_recorded:
            return
        metadata |= self._fallback
        usage_hint: dict[str, object] = {}
        if self.usage is not None:
            usage_hint = {name: getattr(self.usage, name) for name in ("source", *COUNTS)}
            metadata["cost"] = str(self.cost)
            if self.list_price:
                metadata["list_price"] = str(self.list_price)
            if self.is_assumed_price:
                metadata["price"] = "assumed"
        if self.call.recording == NO_REPLIES and self.copy is not None and (name := read_answer_id(self.beginning)):
            metadata["reply_id"] = name
        # Of a reply whose client left in the middle of it, the encoding is all that must be known.
        of_encoding = [("content-encoding", self.encoding)] if self.encoding else []
        call = self.call
        if call.login is not None:
            headers = call.login.mask_pairs([pair for pair in headers or () if pair[0] != "content-encoding"])
            error = call.mask(error)
        self.journal.end(
            CallEnded(
                exchange=self.call.exchange,
                at=time.time(),
                reason=reason,
                status=status,
                first_byte_at=self.first_byte_at,
                attempts=self.call.attempts,
                response_headers=headers or of_encoding,
                is_counted=self.is_counted_here or not is_used,
                usage_hint=usage_hint,
                reply_size=self.size,
                # It may have text of the vendor's reply, which is not recorded in these modes.
                error="" if self.size and self.call.recording in WITHOUT_REPLIES else error,
                metadata=metadata,
            )
        )

    @property
    def beginning(self) -> bytes:
        return self.copy.beginning(self.encoding) if self.copy is not None else b""

    async def _try_to_count(self, *, is_done: bool) -> None:
        # A few compressed bytes may be very many.
        size = MOST_PLAIN if self.encoding else self.size
        try:
            if self.upstream is not None and self.copy is not None:
                self.usage = await parse_apart(
                    size,
                    read_usage,
                    self.upstream.dialect,
                    self.copy,
                    self.encoding,
                    is_chat=self.call.address.kind == "chat",
                    request_size=len(self.call.body),
                    is_done=is_done,
                )
            self._count()
        except Exception:  # an error in counting must not break the reply, which is on its way
            logger.exception("The usage of call %s cannot be counted.", self.call.name)

    def _count(self) -> None:
        upstream, call = self.upstream, self.call
        if upstream is not None and self.usage is not None:
            name, model = upstream.provider.name, upstream.model
            has_money_budget = rate_limits.has_money_budget(call)
            if upstream.is_plan:
                self.list_price = cost_of(self.usage, provider=name, model=model)
            else:
                self.cost = cost_of(self.usage, provider=name, model=model, has_money_budget=has_money_budget)
                self.is_assumed_price = has_money_budget and price_of(provider=name, model=model) is None
            tokens = self.usage.input_tokens + self.usage.output_tokens
            usage_counters.note(call.key, tokens, self.cost)
            call.spent = Use(0, tokens, self.cost)


def _accepted(call: Call, upstream: Upstream) -> CallAccepted:
    session, is_bare = call.session_name, call.recording == WITHOUT_BODIES
    return CallAccepted(
        exchange=call.exchange,
        at=call.at,
        key=call.key.id,
        owner=call.key.owner_id,
        recording=call.recording,
        dialect=call.address.dialect,
        kind=call.address.kind,
        method=call.method,
        path=call.mask(call.path),
        query="" if is_bare else call.mask(call.query),
        # Without bodies: only the client program and the number of its retry.
        headers=_headers(call, is_bare=is_bare),
        body_size=len(call.body),
        provider=upstream.provider.name,
        model=call.mask(upstream.model),
        stream=call.wants_stream,
        session=session.session,
        recognised_by=session.recognised_by,
        new_session=session.is_new,
        removed_session_field=call.has_lost_session_field,
        peer=call.peer,
        upstream_dialect=upstream.dialect,
        billing=upstream.billing,
    )


def _headers(call: Call, *, is_bare: bool) -> Pairs:
    if is_bare:
        headers = [pair for pair in call.pairs if pair[0] in ("user-agent", "x-stainless-retry-count")]
    else:
        headers = without_credentials(call.pairs)
    return headers if call.login is None else call.login.mask_pairs(headers)
