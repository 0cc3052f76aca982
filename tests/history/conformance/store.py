"""What the conformance kit asks of a store: a few verbs, and plain values to answer with.

A store keeps sessions of entries (`history.entries`). Anything can be one: tables, files, a service. To test another
one, write an adapter with these methods and subclass `kit.StoreContract`; `plain.PlainStore` is an example that keeps
everything in lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from history.entries import Entry, Node


class Refused(Exception):
    """The store took nothing of what it was given. Adapters raise it in place of their own errors."""


@dataclass(frozen=True, slots=True)
class Stored:
    seq: int
    moved_head: bool


@dataclass(frozen=True, slots=True)
class Slice:
    """A page of one path: the numbers of its entries, oldest first."""

    numbers: tuple[int, ...]
    has_older: bool
    has_newer: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds at the end of a path."""

    instruction: str
    notebook: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    version: int
    head: int
    messages: int  # what people see as messages, on the path
    tool_calls: int
    errors: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call on the path: which entry asked it, its place there, and how it ended."""

    seq: int
    index: int
    call_id: str
    status: str
    answered_by: int | None
    result: str


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message to a model: the entries that it comes from, and its texts; of results one each, None where masked."""

    numbers: tuple[int, ...]
    texts: tuple[str | None, ...]


class Store(Protocol):
    """Sessions have names that the store chooses. `source` is "chat" (held to pairing) or "relay" (as it came)."""

    def start(self, *, source: str = "chat") -> str: ...

    def append(self, session: str, entry: Entry, *, after: int) -> Stored:
        """Store one entry after the one that its writer saw; `Refused` where that is no entry to continue after."""

    def append_many(self, session: str, entries: Sequence[Entry], *, after: int) -> list[Stored]:
        """A chain, as a whole or not at all."""

    def move_head(self, session: str, *, to: int) -> Stored: ...

    def fork(self, session: str, *, at: int) -> str: ...

    def path(self, session: str, *, leaf: int | None = None, at_version: int | None = None) -> list[Node]:
        """From the start to the head, or to another leaf, or to the head of an earlier version."""

    def page(
        self,
        session: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 20,
        leaf: int | None = None,
    ) -> Slice: ...

    def holding(self, session: str, *, leaf: int | None = None, at_version: int | None = None) -> Holding: ...

    def sent_messages(self, session: str, *, leaf: int | None = None) -> list[SentMessage]:
        """What a path says to a model, summaries in place of what they stand for; before pairing and limits."""

    def counters(self, session: str) -> Counters: ...

    def calls(self, session: str) -> list[Call]: ...

    def ledger(self, session: str) -> list[Node]:
        """Every entry of all branches in the order of writing."""

    def search(self, word: str) -> set[tuple[str, int]]:
        """(session, seq) of every message, call or result with this word."""

    def verify(self, session: str) -> list[str]:
        """What is wrong with the session; nothing, if it is whole."""
