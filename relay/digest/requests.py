"""Relayed requests, decoded once: entries, the chain of fingerprints over them, client, parent, side call.

Nothing here reads the database, and no input is an error: what cannot be read becomes the `problem` of the exchange.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self, TypeVar
from uuid import UUID

import msgspec
from django.conf import settings

from history.clients import client_name, parent_session_name
from history.dialects import DIALECTS, DecodedRequest, DialectError
from history.dialects.http_api import HttpApi
from history.dialects.json_access import parse_json
from history.dialects.tools import text_tool_names
from history.dialects.types import ConversationEntry
from history.entries import ModelOutput, ToolRequest, ToolResult, ToolResults
from history.record import fingerprints
from relay.digest.side_calls import new_text, side_call_kind
from relay.gateway.call.json_scanner import is_too_heavy
from relay.gateway.call.session_ids import session_id
from relay.gateway.journal.records import CallAccepted

Renames = Mapping[int, Mapping[str, str]]  # by the index of an answer: from the id of a call to another one
LONGEST_NAME = 200
COMPARED_CHARS = 200
_NO_API = HttpApi()
CallOrResult = TypeVar("CallOrResult", ToolRequest, ToolResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedRequest:
    record: CallAccepted
    at: datetime
    session: UUID | None = None  # the one that the call itself names
    decoded: DecodedRequest | None = None
    problem: str = ""
    chain: tuple[bytes, ...] = ()  # a fingerprint for each entry as the record has it, as far as known
    sent_chain: tuple[bytes, ...] = ()  # the same for what the client sent
    unfinished: ModelOutput | None = None  # the answer that the request ends with: the model continues it
    is_prefilled: bool = False  # the client wrote that answer, and it is not an entry
    text_tools: frozenset[str] = frozenset()  # those that are called with plain text
    last_text: str = ""  # the start of the last entry, for comparison
    client: str = ""
    side_call: str = ""  # the kind of side call
    side_call_text: str = ""  # its question
    parent: UUID | None = None
    retry: int = 0  # the client's attempts, from 0
    body_hash: str = ""

    @property
    def api(self) -> HttpApi:
        dialect = DIALECTS.get(self.record.dialect)
        return dialect.HTTP_API if dialect else _NO_API

    @property
    def entries(self) -> Sequence[ConversationEntry]:
        return self.decoded.entries if self.decoded else ()

    @property
    def last_answer(self) -> int | None:
        return next(filter(self._is_answer, reversed(range(len(self.entries)))), None)

    @property
    def first_answer(self) -> int | None:
        return next(filter(self._is_answer, range(len(self.entries))), None)

    def _is_answer(self, index: int) -> bool:
        """An answer without content (reasoning alone) leaves the chain unchanged and identifies nothing."""
        return isinstance(self.entries[index], ModelOutput) and self.chain[index] != self.before(index)

    def questions(self, *, since: int = 0) -> set[bytes]:
        """The fingerprints of what its answers follow, from this index on."""
        indices = range(max(since, 1), len(self.entries))
        return {self.chain[index - 1] for index in indices if isinstance(self.entries[index], ModelOutput)}

    def before(self, index: int) -> bytes:
        return self.chain[index - 1] if index else fingerprints.START

    @property
    def end(self) -> bytes:
        """The fingerprint of the whole request: what an answer to it follows."""
        return self.chain[-1] if self.chain else b""

    @property
    def sent_end(self) -> bytes:
        return self.sent_chain[-1] if self.sent_chain else fingerprints.START

    @property
    def ends(self) -> tuple[bytes, ...]:
        """What an answer to it may follow: an answer that it ends with may be the beginning of that one."""
        if self.unfinished is None or self.is_prefilled:
            return (self.end,)
        return (self.end, self.before(len(self.chain) - 1))

    @property
    def sends_only_new(self) -> bool:
        """The vendor keeps the earlier entries under a name, and the client does not send them again."""
        return bool(self.hint("previous_response_id") or self.hint("conversation"))

    def hint(self, name: str) -> str:
        return self.decoded.session_hints.get(name, "")[:LONGEST_NAME] if self.decoded else ""

    def fingerprint(self, entry: ConversationEntry, *, after: bytes) -> bytes:
        return next(_chain(self.record, [entry], after=after))

    def prefilled(self) -> Self:
        if self.decoded is None or self.is_prefilled:
            return self
        decoded = replace(self.decoded, entries=self.decoded.entries[:-1], places=self.decoded.places[:-1])
        return replace(self, decoded=decoded, chain=self.chain[:-1], is_prefilled=True)

    def with_fingerprint_at(self, index: int, fingerprint: bytes) -> Self:
        later = _chain(self.record, self.entries[index + 1 :], after=fingerprint)
        return replace(self, chain=(*self.chain[:index], fingerprint, *later))

    def chained_after(self, fingerprint: bytes) -> Self:
        """With the chain of a request that has what leads to this fingerprint before it."""
        return replace(self, chain=tuple(_chain(self.record, self.entries, after=fingerprint)))

    def with_adjacent_answers_joined(self, *, since: int = 0) -> Self | None:
        """With answers that follow each other as one, from this index on; None where there are none."""
        groups: list[list[int]] = []
        for index in range(since, len(self.entries)):
            if groups and all(isinstance(self.entries[one], ModelOutput) for one in (index - 1, index)):
                groups[-1].append(index)
            else:
                groups.append([index])
        return self.regrouped(groups) if since + len(groups) < len(self.entries) else None

    def regrouped(self, groups: Sequence[Sequence[int]]) -> Self:
        """With one entry for each group of indices. The groups reach to the end, and each has entries of one kind."""
        if self.decoded is None:
            return self
        start, added = groups[0][0], [self.joined(group) for group in groups]
        entries = (*self.entries[:start], *added)
        places = (*self.decoded.places[:start], *(self.decoded.places[group[0]] for group in groups))
        decoded = replace(self.decoded, entries=entries, places=places)
        chain = (*self.chain[:start], *_chain(self.record, added, after=self.before(start)))
        prefill = [self.unfinished] if self.unfinished is not None and self.is_prefilled else []
        sent = self.sent_chain[:start]
        sent += (*_chain(self.record, [*added, *prefill], after=sent[-1] if sent else fingerprints.START),)
        unfinished = self.unfinished if self.unfinished is None or prefill else _unfinished_answer(entries)
        return replace(self, decoded=decoded, chain=chain, sent_chain=sent, unfinished=unfinished)

    def joined(self, indices: Sequence[int]) -> ConversationEntry:
        first, *others = (self.entries[index] for index in indices)
        if others and isinstance(first, ModelOutput):
            parts = (part for entry in others if isinstance(entry, ModelOutput) for part in entry.parts)
            return replace(first, parts=(*first.parts, *parts))
        if others and isinstance(first, ToolResults):
            results = (result for entry in others if isinstance(entry, ToolResults) for result in entry.results)
            return replace(first, results=(*first.results, *results))
        return first

    def with_call_ids(self, renames: Renames) -> Self:
        """With other ids for the calls of the answers at these indices, and for the results that follow each."""
        if self.decoded is None:
            return self
        ids: Mapping[str, str] = {}
        entries: list[ConversationEntry] = []
        for index, entry in enumerate(self.entries):
            if isinstance(entry, ModelOutput):
                ids = renames.get(index, {})
            entries.append(_with_ids(entry, ids) if ids else entry)
        first = min(renames)
        chain = (*self.chain[:first], *_chain(self.record, entries[first:], after=self.before(first)))
        return replace(self, decoded=replace(self.decoded, entries=tuple(entries)), chain=chain)

    def as_side_call(self, kind: str) -> Self:
        return replace(self, side_call=kind, side_call_text=new_text(self.decoded) if self.decoded else "")

    def without_body(self) -> Self:
        """What is still needed once the request is in the record."""
        record = msgspec.structs.replace(self.record, body=b"")
        return replace(self, record=record, decoded=None, chain=self.chain[-2:], sent_chain=self.sent_chain[-2:])


def largest_body() -> int:
    """Requests and replies of more bytes are not parsed."""
    return int(settings.PARLEY_MAX_DIGEST_MB * 1024 * 1024)


def read_request(record: CallAccepted) -> RelayedRequest:
    most = largest_body()
    # The journal reader leaves out large bodies too, but its limit includes the head of the record.
    if len(record.body) > most or is_too_heavy(record.body, most=most):
        digest = hashlib.sha256(record.body).hexdigest()
        record = msgspec.structs.replace(record, body=b"", skipped=len(record.body), skipped_hash=digest)
    headers = {name.lower(): value for name, value in record.headers}
    at, client = datetime.fromtimestamp(record.at, UTC), client_name(headers)
    decoded, problem = _decode(record, at)
    entries = decoded.entries if decoded else ()
    chain = tuple(_chain(record, entries, after=fingerprints.START))
    hints = decoded.session_hints if decoded else {}
    parent = parent_session_name(headers, body_session=hints.get("session_id", ""))[:LONGEST_NAME]
    conversation = hints.get("conversation", "")[:LONGEST_NAME]
    retry = headers.get("x-stainless-retry-count", "")
    request = RelayedRequest(
        record=record,
        at=at,
        session=record.session
        or (session_id(f"conversation {conversation}", key=record.key) if conversation else None),
        decoded=decoded,
        problem=problem,
        chain=chain,
        sent_chain=chain,
        unfinished=_unfinished_answer(entries),
        text_tools=text_tool_names(decoded.tools) if decoded else frozenset(),
        last_text=start_of_text(entries[-1]) if entries else "",
        client=client,
        parent=session_id(parent, key=record.key) if parent else None,
        retry=int(retry) if retry.isascii() and retry.isdecimal() and len(retry) < 5 else 0,
        body_hash=record.skipped_hash or (hashlib.sha256(record.body).hexdigest() if record.body else ""),
    )
    kind = side_call_kind(record, decoded, headers, client=client)
    return request.as_side_call(kind) if kind else request


def _decode(record: CallAccepted, at: datetime) -> tuple[DecodedRequest | None, str]:
    if record.skipped:
        return None, f"too large to be read: {record.skipped:,} bytes"
    dialect = DIALECTS.get(record.dialect)
    if dialect is None or not record.body or record.kind == "other":
        return None, ""
    try:
        return dialect.decode_request(parse_json(record.body), provider=record.provider, at=at), ""
    except (DialectError, ValueError, RecursionError) as error:
        return None, str(error) or type(error).__name__


def _chain(record: CallAccepted, entries: Iterable[ConversationEntry], *, after: bytes) -> Iterator[bytes]:
    scope = fingerprints.scope_of(api_key_id=record.key, owner_id=record.owner)
    for entry in entries:
        after = fingerprints.fingerprint(entry, after=after, scope=scope)
        yield after


def _unfinished_answer(entries: Sequence[ConversationEntry]) -> ModelOutput | None:
    last = entries[-1] if entries else None
    if not isinstance(last, ModelOutput) or last.tool_requests:
        return None
    return last if fingerprints.fingerprinted_content(last) is not None else None


def start_of_text(entry: ConversationEntry) -> str:
    """Enough to tell most entries apart; compared in memory, never stored."""
    return entry.text[:COMPARED_CHARS]


def _with_ids(entry: ConversationEntry, ids: Mapping[str, str]) -> ConversationEntry:
    def renamed(one: CallOrResult) -> CallOrResult:
        return replace(one, call_id=ids.get(one.call_id, one.call_id))

    if isinstance(entry, ModelOutput):
        return replace(entry, parts=tuple(renamed(one) if isinstance(one, ToolRequest) else one for one in entry.parts))
    return replace(entry, results=tuple(map(renamed, entry.results))) if isinstance(entry, ToolResults) else entry
