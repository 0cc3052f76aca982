"""Two histories side by side, the real record and a plain-Python model: after every step both say the same.

The model (`tests.history.conformance.plain`) keeps lists and computes everything anew; the record keeps marks, counters
and projections in step. What the steps are is for the subclasses to say; each run of them is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from history import verification
from history.context.rendering import render_context
from history.context.values import Context, ContextOptions
from history.entries import Entry, MaskedResult, Node, ToolResults
from history.record import selectors
from project.accounts.models import User
from tests.factories import assert_counts_equal_a_recount, context_to_bytes
from tests.history.conformance.parley import ParleyStore, holding_in, told_in
from tests.history.conformance.plain import LEAVES, PlainSession, PlainStore
from tests.history.conformance.sent_messages import sent_messages_of
from tests.history.conformance.store import Refused, SentMessage

PLACES = st.integers(0, 10_000)
HEAD = st.none()  # most of the time people go on where they are
WHERE = HEAD | HEAD | HEAD | PLACES
PICK = st.integers(0, 10_000)

UNLIMITED = ContextOptions(max_turns=None)
LIMITS = [
    UNLIMITED,
    ContextOptions(max_turns=1),
    ContextOptions(max_turns=3),
    ContextOptions(max_turns=None, max_messages=4),
    ContextOptions(max_turns=None, max_tokens=80),
]


class SideBySide(RuleBasedStateMachine):
    def open(self, source: str) -> None:
        self.run = transaction.atomic()
        self.run.__enter__()
        self.owner = User.objects.create(username=f"ada-{uuid4().hex}")
        self.real, self.plain = ParleyStore(self.owner), PlainStore()
        self.names: dict[str, str] = {}  # name in the model → name in the record
        self.hidden: set[str] = set()
        self.held: set[str] = set()
        self.words = 0
        self.begin_session(source)

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        try:
            assert [str(finding) for finding in verification.verify()] == []
            assert_counts_equal_a_recount()
        finally:
            transaction.set_rollback(True)
            self.run.__exit__(None, None, None)

    def begin_session(self, source: str) -> None:
        self.names[self.plain.start(source=source)] = self.real.start(source=source)

    # What the steps are made of.

    def word(self) -> str:
        self.words += 1
        return f"w{self.words}x"

    def session(self, pick: int) -> str:
        return sorted(self.names)[pick % len(self.names)]

    def place(self, session: PlainSession, where: int | None) -> int:
        """An entry that can be followed: the head, or any other."""
        if where is None:
            return session.head_at(session.version)
        places = [0, *(row.seq for row in session.rows if session.can_follow(row.seq))]
        return places[where % len(places)]

    def row(self, session: PlainSession, where: int) -> Node | None:
        """An entry that can be said differently; the head cannot be moved to the anchor of a trim."""
        rows = [
            row
            for row in session.rows
            if session.can_follow(row.seq) and (row.parent == 0 or row.parent > session.trimmed_through)
        ]
        return rows[where % len(rows)] if rows else None

    def masks(self, pick: int, where: int | None) -> tuple[MaskedResult, ...]:
        """Every second result on the path."""
        session = self.plain.sessions[self.session(pick)]
        path = session.path_to(self.place(session, where))
        results = [
            MaskedResult(seq=node.seq, index=index)
            for node in path
            if isinstance(node.entry, ToolResults)
            for index in range(len(node.entry.results))
        ]
        return tuple(results[self.words % 2 :: 2])

    def append(self, pick: int, where: int | None, entries: list[Entry]) -> None:
        name = self.session(pick)
        after = self.place(self.plain.sessions[name], where)
        self.both(name, lambda store, session: store.append_many(session, entries, after=after))

    def both(self, name: str, verb: Callable[[Any, str], Any]) -> None:
        """The same in the model and in the record, with the same outcome."""
        expected, got = outcome_of(verb, self.plain, name), outcome_of(verb, self.real, self.names[name])
        assert got == expected
        self.compare(name)

    def leaves(self, name: str) -> list[int]:
        session = self.plain.sessions[name]
        parents = {row.parent for row in session.rows if not isinstance(row.entry, LEAVES)}
        ends = [row.seq for row in session.rows if session.can_follow(row.seq) and row.seq not in parents]
        return ends[-4:]

    def holdings(self, name: str) -> dict[int, Any]:
        return {leaf: self.real.holding(self.names[name], leaf=leaf) for leaf in self.leaves(name)}

    def told_at_leaves(self, name: str) -> dict[int, list[SentMessage]]:
        return {leaf: self.real.sent_messages(self.names[name], leaf=leaf) for leaf in self.leaves(name)}

    def told_by_entries(self, name: str, leaf: int) -> list[SentMessage]:
        """Without summaries that stand only for numbers beside the path, as none has in a fork."""
        session = self.plain.sessions[name]
        path = session.remembered(leaf)
        return sent_messages_of(path, among={*range(1, session.trimmed_through + 1), *(node.seq for node in path)})

    def compare_all(self) -> None:
        for name in self.names:
            self.compare(name)

    def compare(self, name: str) -> None:
        real, kept = self.names[name], self.plain.sessions[name]
        assert self.real.counters(real) == self.plain.counters(name)
        assert self.real.page(real, limit=3) == self.plain.page(name, limit=3)
        self.compare_path(name, None)
        for leaf in self.leaves(name):
            self.compare_path(name, leaf)
        if not kept.dropped:
            assert self.real.calls(real) == self.plain.calls(name)
        self.compare_search(f"w{self.words}x")

    def compare_path(self, name: str, leaf: int | None) -> None:
        """What is on it, what holds at its end, and what a model is told of it: the whole, or under limits."""
        session, kept = self.real.read(self.names[name]), self.plain.sessions[name]
        whole, options = selectors.snapshot(session, leaf=leaf), LIMITS[self.words % len(LIMITS)]
        assert shown(whole.nodes, kept) == shown(self.plain.path(name, leaf=leaf), kept)
        if not kept.dropped:
            assert holding_in(whole) == self.plain.holding(name, leaf=leaf)
        assert told_in(whole) == self.plain.sent_messages(name, leaf=leaf)
        check_that_nothing_is_lost(told_in(whole), render_context(whole, UNLIMITED))
        part = selectors.snapshot(session, leaf=leaf, options=options)
        assert context_to_bytes(render_context(part, options)) == context_to_bytes(render_context(whole, options))

    def compare_search(self, word: str) -> None:
        expected = {(self.names[name], seq) for name, seq in self.plain.search(word) if name not in self.hidden}
        assert self.real.search(word) == expected


def outcome_of(verb: Callable[[Any, str], Any], store: Any, session: str) -> Any:
    try:
        return verb(store, session)
    except Refused:
        return Refused


def texts_in(told: list[SentMessage]) -> list[Any]:
    """What can be compared with a fork, which may also say that something was trimmed."""
    texts = ([text for text in one.texts if text != "trimmed before the fork"] for one in told)
    return [some for some in texts if some]


def check_that_nothing_is_lost(told: list[SentMessage], context: Context) -> None:
    """What was told is sent, or there is a remark on it; and nothing else is."""
    numbers = {number for one in told for number in one.numbers}
    sent = {number for entry in context.entries for number in entry.origin}
    assert sent <= numbers <= sent | {remark.seq for remark in context.report.remarks}


def without(told: list[SentMessage], gone: set[int]) -> list[SentMessage]:
    """What is left of it when these entries are trimmed; nothing else is told in their place."""
    left = [SentMessage(tuple(number for number in one.numbers if number not in gone), one.texts) for one in told]
    return [one for one in left if one.numbers]


def shown(path: Iterable[Node], session: PlainSession) -> list[Any]:
    """What can be compared: marks of misfits are the record's own, and dropped texts are gone."""
    return [
        (node.seq, node.parent)
        if node.seq in session.dropped
        else (node.seq, node.parent, node.entry.kind, node.entry.text)
        for node in path
    ]
