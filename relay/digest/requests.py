"""What a call asked, read once: its entries, the chain of fingerprints over them, who calls, and what kind it is of.

No database is asked here, and nothing that a client sends is an error: what cannot be read is told on the exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from django.conf import settings

from history.dialects import DIALECTS, DecodedRequest, DialectError
from history.dialects.encoder import taking_text
from history.dialects.json_access import parsed
from history.dialects.types import Said
from history.entries import ModelOutput, ToolRequest, ToolResults
from history.record import fingerprints
from relay.digest.clients import client_of, parent_of
from relay.digest.side_calls import new_words, side_call
from relay.gateway.call.json_weight import is_too_heavy
from relay.gateway.call.session_ids import session_id
from relay.gateway.journal.records import Accepted

# By the place of an answer: from the id of a call to another one.
Renames = Mapping[int, Mapping[str, str]]
LONGEST_NAME = 200
SOME_WORDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedRequest:
    """`chain` has a fingerprint for each entry of the request, as the record has them as far as we know; `sent` is the
    same for what the client sent, whatever the record has. `begun` is the answer that the request ends with, if there
    is one: the model goes on with it (`prefills`). `is_prefilled`: the client wrote that, and it is no entry.

    `of_text` are the tools that its client calls with plain text, whatever the model writes (`as_told`).
    `side` is the kind of side call that it is, and `side_words` what it asks then.
    `asks` is what it ends with, in a few words; `retry` is which try of the client's this is, from 0;
    `session` is the one that the call itself names, by a header, an id of its program or the vendor's conversation."""

    record: Accepted
    at: datetime
    session: UUID | None = None
    request: DecodedRequest | None = None
    problem: str = ""
    chain: tuple[bytes, ...] = ()
    sent: tuple[bytes, ...] = ()
    begun: ModelOutput | None = None
    is_prefilled: bool = False
    of_text: frozenset[str] = frozenset()
    asks: str = ""
    client: str = ""
    side: str = ""
    side_words: str = ""
    parent: UUID | None = None
    retry: int = 0
    body_hash: str = ""

    @property
    def entries(self) -> Sequence[Said]:
        return self.request.entries if self.request else ()

    @property
    def last_answer(self) -> int | None:
        """The place of the newest answer that the client sends back."""
        return next(filter(self._is_answer, reversed(range(len(self.entries)))), None)

    @property
    def first_answer(self) -> int | None:
        return next(filter(self._is_answer, range(len(self.entries))), None)

    def _is_answer(self, place: int) -> bool:
        """An answer that says nothing (a thought alone) leaves the chain as it is, and is nothing to know it by."""
        before = self.chain[place - 1] if place else fingerprints.START
        return isinstance(self.entries[place], ModelOutput) and self.chain[place] != before

    @property
    def end(self) -> bytes:
        """The chain over the whole request: what an answer to it follows."""
        return self.chain[-1] if self.chain else b""

    @property
    def ends(self) -> tuple[bytes, ...]:
        """What an answer to it may follow: an answer that it ends with may turn out to be the beginning of that."""
        if self.begun is None or self.is_prefilled:
            return (self.end,)
        return (self.end, self.chain[-2] if len(self.chain) > 1 else fingerprints.START)

    def prefilled(self) -> RelayedRequest:
        """The request without the beginning of the answer."""
        if self.request is None or self.is_prefilled:
            return self
        request = replace(self.request, entries=self.request.entries[:-1], places=self.request.places[:-1])
        return replace(self, request=request, chain=self.chain[:-1], is_prefilled=True)

    def chained_from(self, place: int, mark: bytes) -> RelayedRequest:
        """With another mark for the entry at this place, and what follows from it for those after it."""
        later = _chain(self.record, self.entries[place + 1 :], after=mark)
        return replace(self, chain=(*self.chain[:place], mark, *later))

    def chained_after(self, mark: bytes) -> RelayedRequest:
        """With the chain of a request that has what leads to this mark before it."""
        return replace(self, chain=tuple(_chain(self.record, self.entries, after=mark)))

    def with_neighbours_joined(self, *, since: int = 0) -> RelayedRequest | None:
        """With answers that follow each other as one, from this place on; None where there are no such."""
        groups: list[list[int]] = []
        for place in range(since, len(self.entries)):
            if groups and all(isinstance(self.entries[one], ModelOutput) for one in (place - 1, place)):
                groups[-1].append(place)
            else:
                groups.append([place])
        return self.regrouped(groups) if since + len(groups) < len(self.entries) else None

    def regrouped(self, groups: Sequence[Sequence[int]]) -> RelayedRequest:
        """With one entry for each group of places. Groups are of one kind and go on to the end."""
        if self.request is None:
            return self
        start, added = groups[0][0], [self.joined(group) for group in groups]
        places = [self.request.places[group[0]] for group in groups]
        request = replace(
            self.request,
            entries=(*self.entries[:start], *added),
            places=(*self.request.places[:start], *places),
        )
        chain, sent = self.chain[:start], self.sent[:start]
        taken_out = [self.begun] if self.begun is not None and self.is_prefilled else []
        return replace(
            self,
            request=request,
            chain=(*chain, *_chain(self.record, added, after=chain[-1] if chain else fingerprints.START)),
            sent=(*sent, *_chain(self.record, [*added, *taken_out], after=sent[-1] if sent else fingerprints.START)),
            begun=self.begun if self.begun is None or self.is_prefilled else _begun(request),
        )

    def with_call_ids(self, renames: Renames) -> RelayedRequest:
        """With other ids for the calls of the answers at these places, and for the results that follow each."""
        if self.request is None:
            return self
        names: Mapping[str, str] = {}
        entries: list[Said] = []
        for place, entry in enumerate(self.entries):
            if isinstance(entry, ModelOutput):
                names = renames.get(place, {})
            entries.append(_renamed(entry, names) if names else entry)
        first = min(renames)
        before = self.chain[first - 1] if first else fingerprints.START
        chain = (*self.chain[:first], *_chain(self.record, entries[first:], after=before))
        return replace(self, request=replace(self.request, entries=tuple(entries)), chain=chain)

    def joined(self, places: Sequence[int]) -> Said:
        """The pieces of one answer, or of its results, as one entry."""
        first, *others = (self.entries[place] for place in places)
        if isinstance(first, ModelOutput):
            parts = (part for entry in others if isinstance(entry, ModelOutput) for part in entry.parts)
            return replace(first, parts=(*first.parts, *parts)) if others else first
        if isinstance(first, ToolResults):
            results = (result for entry in others if isinstance(entry, ToolResults) for result in entry.results)
            return replace(first, results=(*first.results, *results)) if others else first
        return first

    def mark(self, entry: Said, *, after: bytes) -> bytes:
        return next(_chain(self.record, [entry], after=after))

    def name(self, hint: str) -> str:
        return self.request.session_hints.get(hint, "")[:LONGEST_NAME] if self.request else ""

    @property
    def sends_new_alone(self) -> bool:
        """What came before is kept by the vendor, under a name, and is not sent again."""
        return bool(self.name("previous_response_id") or self.name("conversation"))

    def as_side_call(self, kind: str) -> RelayedRequest:
        return replace(self, side=kind, side_words=new_words(self.request) if self.request else "")

    def without_body(self) -> RelayedRequest:
        """What is still of interest once the request is in the record."""
        record = msgspec.structs.replace(self.record, body=b"")
        return replace(self, record=record, request=None, chain=self.chain[-2:], sent=self.sent[-2:])


def largest_body() -> int:
    """Requests and replies of more bytes are not parsed."""
    return int(settings.PARLEY_MAX_DIGEST_MB * 1024 * 1024)


def is_too_large(body: bytes) -> bool:
    """Whether parsing takes too much memory: by its size, or because it consists of very many small values."""
    most = largest_body()
    return len(body) > most or is_too_heavy(body, most=most)


def without_large_body(record: Accepted) -> Accepted:
    """A reader that leaves out large bodies counts the head of the record, too: this is the exact limit."""
    if not is_too_large(record.body):
        return record
    digest = hashlib.sha256(record.body).hexdigest()
    return msgspec.structs.replace(record, body=b"", skipped=len(record.body), skipped_hash=digest)


def read(record: Accepted) -> RelayedRequest:
    record = without_large_body(record)
    headers = {name.lower(): value for name, value in record.headers}
    request, problem = _decoded(record)
    chain = tuple(_chain(record, request.entries if request else (), after=fingerprints.START))
    above = parent_of(headers, named=request.session_hints.get("session_id", "") if request else "")
    client = client_of(headers)
    asked = RelayedRequest(
        record=record,
        at=datetime.fromtimestamp(record.at, UTC),
        session=record.session or _conversation(record, request),
        request=request,
        problem=problem,
        chain=chain,
        sent=chain,
        begun=_begun(request),
        of_text=taking_text(request.tools) if request else frozenset(),
        asks=words_of(request.entries[-1]) if request and request.entries else "",
        client=client,
        parent=session_id(above[:LONGEST_NAME], key=record.key) if above else None,
        retry=_number(headers.get("x-stainless-retry-count", "")),
        body_hash=record.skipped_hash or (hashlib.sha256(record.body).hexdigest() if record.body else ""),
    )
    kind = side_call(record, request, headers, client=client)
    return asked.as_side_call(kind) if kind else asked


def _decoded(record: Accepted) -> tuple[DecodedRequest | None, str]:
    if record.skipped:
        return None, f"too large to be read: {record.skipped:,} bytes"
    dialect = DIALECTS.get(record.dialect)
    if dialect is None or not record.body or record.kind == "other":
        return None, ""
    try:
        body = parsed(record.body)
        at = datetime.fromtimestamp(record.at, UTC)
        return dialect.decode_request(body, provider=record.provider, at=at), ""
    except (DialectError, ValueError, RecursionError) as error:
        return None, str(error) or type(error).__name__


def _conversation(record: Accepted, request: DecodedRequest | None) -> UUID | None:
    name = request.session_hints.get("conversation", "")[:LONGEST_NAME] if request else ""
    return session_id(f"conversation {name}", key=record.key) if name else None


def _chain(record: Accepted, entries: Iterable[Said], *, after: bytes) -> Iterator[bytes]:
    scope = fingerprints.scope_of(api_key_id=record.key, owner_id=record.owner)
    for entry in entries:
        after = fingerprints.fingerprint(entry, after=after, scope=scope)
        yield after


def _begun(request: DecodedRequest | None) -> ModelOutput | None:
    last = request.entries[-1] if request and request.entries else None
    if not isinstance(last, ModelOutput) or last.tool_requests:
        return None
    return last if fingerprints.essence_of(last) is not None else None


def words_of(entry: Said) -> str:
    """Enough to tell most of what is said apart, and no more: it is compared, and stored nowhere."""
    return entry.text[:SOME_WORDS]


def _renamed(entry: Said, names: Mapping[str, str]) -> Said:
    if isinstance(entry, ModelOutput):
        parts = (
            replace(part, call_id=names.get(part.call_id, part.call_id)) if isinstance(part, ToolRequest) else part
            for part in entry.parts
        )
        return replace(entry, parts=tuple(parts))
    if isinstance(entry, ToolResults):
        results = (replace(one, call_id=names.get(one.call_id, one.call_id)) for one in entry.results)
        return replace(entry, results=tuple(results))
    return entry


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0
