"""Random histories, step by step, in the real record and in a plain-Python model: after every step both say the same.

The model (`tests.conformance.plain`) keeps lists and computes everything anew; the record keeps marks, counters and
projections in step. Steps are everything that can happen to a history: entries in order, late, in chains and batches;
heads that move; forks; calls that are answered, skipped or cut off; answers that end in every way; transactions that
fail half-way; and what retention does: hiding, holding, dropping, trimming, removing. Each run is one transaction.

`PARLEY_STEPS` multiplies the number of runs (`make faults`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from history import exchanges, recorder, retention, selectors, verification
from history.entries import (
    DebugLog,
    Entry,
    HeadMoved,
    ModelOutput,
    Node,
    NotebookSet,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
    Usage,
)  # fmt: skip
from history.models import Exchange, Message, SearchRow, Session, ToolCall
from project.accounts.models import User
from tests.conformance.parley import ParleyStore
from tests.conformance.plain import CONVERSATION, LEAVES, PlainSession, PlainStore
from tests.conformance.store import Refused
from tests.talk import said

PLACES = st.integers(0, 10_000)
HEAD = st.none()  # most of the time people go on where they are
WHERE = HEAD | HEAD | HEAD | PLACES
PICK = st.integers(0, 10_000)
STATUS_OF_END = {"done": "complete", "upstream_error": "failed"}


class Histories(RuleBasedStateMachine):
    @initialize(source=st.sampled_from(["chat", "relay"]))
    def begin(self, source: str) -> None:
        self.run = transaction.atomic()
        self.run.__enter__()
        self.owner = User.objects.create(username=f"ada-{uuid4().hex}")
        self.real, self.plain = ParleyStore(self.owner), PlainStore()
        self.names: dict[str, str] = {}  # name in the model → name in the record
        self.hidden: set[str] = set()
        self.held: set[str] = set()
        self.words = 0
        self.start(source)

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        try:
            assert [str(finding) for finding in verification.verify()] == []
        finally:
            transaction.set_rollback(True)
            self.run.__exit__(None, None, None)

    # Entries.

    @rule(source=st.sampled_from(["chat", "relay"]))
    @precondition(lambda self: len(self.names) < 4)
    def start(self, source: str) -> None:
        self.names[self.plain.start(source=source)] = self.real.start(source=source)

    @rule(pick=PICK, where=WHERE)
    def say(self, pick: int, where: int | None) -> None:
        self.append(pick, where, [said(f"{self.word()} please")])

    @rule(pick=PICK, where=WHERE, status=st.sampled_from(["complete", "complete", "interrupted", "failed"]))
    def answer(self, pick: int, where: int | None, status: Any) -> None:
        usage = Usage(input_tokens=7, output_tokens=3)
        self.append(pick, where, [ModelOutput(parts=(Text(text=self.word()),), status=status, usage=usage)])

    @rule(pick=PICK, where=WHERE, calls=st.integers(1, 3), same_id=st.booleans(), cut=st.booleans())
    def call(self, pick: int, where: int | None, calls: int, same_id: bool, cut: bool) -> None:
        requests = [
            ToolRequest(call_id="same" if same_id else f"c{number}", name=self.word(), arguments='{"a' if cut else "{}")
            for number in range(calls)
        ]
        self.append(pick, where, [ModelOutput(parts=tuple(requests), status="interrupted" if cut else "complete")])

    @rule(
        pick=PICK, where=WHERE, backwards=st.booleans(), failed=st.booleans(), surplus=st.sampled_from([0, 0, 0, 1, -1])
    )
    def give_results(self, pick: int, where: int | None, backwards: bool, failed: bool, surplus: int) -> None:
        """For the calls that stand open there; one too many or too few is refused, or kept with a mark."""
        session = self.plain.sessions[self.session(pick)]
        calls = list(session.open_calls_at(self.place(session, where)))
        calls += [ToolRequest(call_id="nobody asked", name="x")] * (surplus == 1)
        outcomes = [
            ToolResult(call_id=call.call_id, name=call.name, status="failed" if failed else "success",
                       parts=(Text(text=self.word()),))
            for call in calls[: len(calls) + min(surplus, 0)]
        ]  # fmt: skip
        if outcomes or surplus:
            self.append(pick, where, [ToolResults(results=tuple(outcomes[::-1] if backwards else outcomes))])

    @rule(pick=PICK, where=WHERE, what=st.sampled_from(["instruction", "notebook", "tools", "log"]))
    def note(self, pick: int, where: int | None, what: str) -> None:
        word = self.word()
        entry: Entry = {
            "instruction": SystemInstructionSet(instruction=word),
            "notebook": NotebookSet(content=word),
            "tools": ToolsOffered(tools=(ToolDefinition(name=word, description="d" * 1_500),)),
            "log": DebugLog(message=word),
        }[what]
        self.append(pick, where, [entry])

    @rule(pick=PICK, where=WHERE, turns=st.integers(1, 3))
    def talk(self, pick: int, where: int | None, turns: int) -> None:
        chain: list[Entry] = []
        for _ in range(turns):
            request = ToolRequest(call_id="c", name="clock")
            result = ToolResult(call_id="c", name="clock", parts=(Text(text=self.word()),))
            chain += [said(self.word()), ModelOutput(parts=(request,)), ToolResults(results=(result,))]
        self.append(pick, where, chain)

    @rule(picks=st.lists(PICK, min_size=1, max_size=5))
    def batch(self, picks: list[int]) -> None:
        """Entries of several sessions in one transaction, each after the one before it there."""
        names = [self.session(pick) for pick in picks]
        leaves = {name: self.plain.counters(name).head for name in names}
        wishes, stored = [], []
        for name in names:
            entry = said(self.word())
            wishes.append(recorder.Append(UUID(self.names[name]), entry, None))
            stored.append(self.plain.append(name, entry, after=leaves[name]))
            leaves[name] = stored[-1].seq
        appended = recorder.append_batch(wishes)
        assert [(one.seq, one.moved_head) for one in appended] == [(one.seq, one.moved_head) for one in stored]
        self.compare_all()

    # Branches.

    @rule(pick=PICK, where=PLACES)
    def move_head(self, pick: int, where: int) -> None:
        name = self.session(pick)
        to = self.place(self.plain.sessions[name], where)
        self.both(name, lambda store, session: store.move_head(session, to=to))

    @rule(pick=PICK, where=PLACES, regenerate=st.booleans())
    def say_differently(self, pick: int, where: int, regenerate: bool) -> None:
        name = self.session(pick)
        row = self.row(self.plain.sessions[name], where)
        if row is None:
            return
        session, entry = self.real.read(self.names[name]), said(self.word())
        if regenerate:
            assert recorder.regenerate(session, seq=row.seq) == row.parent
            self.plain.move_head(name, to=row.parent)
        else:
            appended = recorder.edit(session, seq=row.seq, entry=entry)
            stored = self.plain.append_many(name, [HeadMoved(to=row.parent), entry], after=row.parent)[-1]
            assert (appended.seq, appended.moved_head) == (stored.seq, stored.moved_head)
        self.compare(name)

    @rule(pick=PICK, where=WHERE)
    @precondition(lambda self: len(self.names) < 4)
    def fork(self, pick: int, where: int | None) -> None:
        name = self.session(pick)
        at = self.place(self.plain.sessions[name], where)
        if at in self.plain.sessions[name].gone:
            return
        copy = self.plain.fork(name, at=at)
        self.names[copy] = self.real.fork(self.names[name], at=at)
        self.compare(copy)

    # Exchanges and crashes.

    @rule(pick=PICK, end=st.sampled_from(["done", "upstream_error", "stopped", "server_lost"]), words=st.integers(0, 2))
    def exchange(self, pick: int, end: str, words: int) -> None:
        name = self.session(pick)
        session = self.real.read(self.names[name])
        after = session.head
        text = " ".join(self.word() for _ in range(words))
        output = ModelOutput(parts=(Text(text=text),) if text else (), model="model-1")
        exchange = exchanges.open_exchange(session, owner=self.owner, after=after, inputs={"system": "s" * 2_000})
        exchanges.note_partial(exchange.pk, output)
        exchanges.flush_partials()
        if end == "server_lost":
            Exchange.objects.filter(pk=exchange.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
            assert exchanges.sweep() == 1
        else:
            exchanges.finish(exchange, output, end_reason=end)
        late = None if end == "server_lost" else output  # a whole answer would be heard even then
        assert exchanges.finish(exchange, late, end_reason="done") is None
        status: Any = STATUS_OF_END.get(end, "interrupted")
        if text or status != "interrupted":
            ended = ModelOutput(parts=output.parts, model="model-1", status=status, end_reason=end, at=output.at)
            self.plain.append(name, ended, after=after)
        self.compare(name)

    @rule(pick=PICK, where=PLACES)
    def crash(self, pick: int, where: int) -> None:
        """A transaction that fails after everything was written leaves nothing."""
        name = self.session(pick)
        to = self.place(self.plain.sessions[name], where)
        session = self.real.read(self.names[name])
        with transaction.atomic():
            recorder.append_many(session, [said("lost"), HeadMoved(to=to), said("lost too")], after=session.head)
            recorder.fork(session, at=session.head, owner=self.owner)
            transaction.set_rollback(True)
        self.compare(name)

    # Retention.

    @rule(pick=PICK)
    def hide_or_bring_back(self, pick: int) -> None:
        name = self.session(pick)
        session = self.real.read(self.names[name])
        if name in self.hidden:
            assert retention.unhide(session, actor=self.owner)
        else:
            assert retention.hide(session, actor=self.owner)
        self.hidden ^= {name}
        assert (selectors.find_session(self.owner, session.pk) is None) == (name in self.hidden)

    @rule(pick=PICK)
    def hold_or_release(self, pick: int) -> None:
        name = self.session(pick)
        change = retention.release if name in self.held else retention.hold
        assert change(self.real.read(self.names[name]), actor=self.owner, reason="court order")
        self.held ^= {name}

    @rule()
    def empty_the_trash(self) -> None:
        retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=25))
        for name in sorted(self.hidden - self.held):
            real = UUID(self.names.pop(name))
            self.hidden.discard(name)
            del self.plain.sessions[name]
            assert not Session.objects.filter(pk=real).exists()
            for model in (Message, ToolCall, Exchange):
                assert not model._default_manager.filter(session=real).exists()
        assert not SearchRow.objects.exclude(message__session__in=map(UUID, self.names.values())).exists()
        if not self.names:
            self.start("chat")

    @rule(limit=st.integers(1, 8))
    def trim(self, limit: int) -> None:
        before = {name: self.holdings(name) for name in self.names}
        with override_settings(CHAT_HISTORY_MAX_MESSAGES=limit):
            retention.purge(dry_run=False)
        for name, real in self.names.items():
            kept = self.plain.sessions[name]
            seqs = set(Message.objects.filter(session=UUID(real)).values_list("seq", flat=True))
            gone = {row.seq for row in kept.written} - seqs
            if gone != kept.gone:
                event("something was trimmed")
                assert name not in self.held
                assert kept.source == "relay"
                check_that_pairs_stay_together(kept, gone)
                kept.gone, kept.trimmed_through = gone, self.real.read(real).trimmed_through
            assert self.holdings(name) == {leaf: held for leaf, held in before[name].items() if leaf not in gone}
        self.compare_all()

    @rule()
    def drop_texts(self) -> None:
        with override_settings(CHAT_HISTORY_BODY_DAYS=1):
            retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=23) + timedelta(hours=2))
        self.empty_the_trash()
        for name, real in self.names.items():
            dropped = set(Message.objects.filter(session=UUID(real), body=None).values_list("seq", flat=True))
            if dropped - self.plain.sessions[name].dropped:
                event("texts were dropped")
                assert name not in self.held
            self.plain.sessions[name].dropped = dropped
        self.compare_all()

    # What the rules share.

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

    def compare_all(self) -> None:
        for name in self.names:
            self.compare(name)

    def compare(self, name: str) -> None:
        real, kept = self.names[name], self.plain.sessions[name]
        assert self.real.counters(real) == self.plain.counters(name)
        assert shown(self.real.path(real), kept) == shown(self.plain.path(name), kept)
        assert self.real.page(real, limit=3) == self.plain.page(name, limit=3)
        for leaf in self.leaves(name):
            assert shown(self.real.path(real, leaf=leaf), kept) == shown(self.plain.path(name, leaf=leaf), kept)
            if not kept.dropped:
                assert self.real.holding(real, leaf=leaf) == self.plain.holding(name, leaf=leaf)
        if not kept.dropped:
            assert self.real.calls(real) == self.plain.calls(name)
        self.compare_search(f"w{self.words}x")

    def compare_search(self, word: str) -> None:
        expected = {(self.names[name], seq) for name, seq in self.plain.search(word) if name not in self.hidden}
        assert self.real.search(word) == expected


def outcome_of(verb: Callable[[Any, str], Any], store: Any, session: str) -> Any:
    try:
        return verb(store, session)
    except Refused:
        return Refused


def shown(path: list[Node], session: PlainSession) -> list[Any]:
    """What can be compared: marks of misfits are the record's own, and dropped texts are gone."""
    return [
        (node.seq, node.parent)
        if node.seq in session.dropped
        else (node.seq, node.parent, node.entry.kind, node.entry.text)
        for node in path
    ]


def check_that_pairs_stay_together(session: PlainSession, gone: set[int]) -> None:
    """No trim takes a call and leaves its results, on whatever branch, nor the other way round."""
    for row in session.rows:
        if isinstance(row.entry, ToolResults):
            above = [node for node in session.path_to(row.parent) if isinstance(node.entry, CONVERSATION)]
            if above and isinstance(above[-1].entry, ModelOutput):
                assert (row.seq in gone) == (above[-1].seq in gone)


@pytest.mark.django_db
def test_the_record_does_what_the_model_does() -> None:
    many = int(os.environ.get("PARLEY_STEPS", "1"))
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=20 * many,
            stateful_step_count=25,
            deadline=None,
            derandomize=many == 1,
            # Shrinking a long run of steps takes minutes; `make faults` has them.
            phases=[Phase.generate] if many == 1 else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
