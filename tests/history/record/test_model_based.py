"""Random histories, step by step, in the real record and in a plain-Python model: after every step both say the same.

`side_by_side` compares the two. Steps are everything that can happen to a history: entries in order, late, in chains
and batches; summaries, and that they are taken back; heads that move; forks; calls that are answered, skipped or cut
off; answers that end in every way; transactions that fail half-way; and what retention does: hiding, holding, dropping,
trimming, removing.

`PARLEY_STEPS` multiplies the number of runs (`make faults`).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from history import retention
from history.access import permissions
from history.access.permissions import Purpose
from history.entries import HeadMoved, ModelOutput, Text, ToolRequest, ToolResult, ToolResults
from history.models import Exchange
from history.record import exchanges, recorder
from tests.factories import example_count, model_input
from tests.history.conformance.state_machine import PICK, PLACES, WHERE, SideBySide
from tests.history.conformance.steps import Branching, Summarising, Talking, Thinning

pytestmark = pytest.mark.runs_first

STATUS_OF_END = {"done": "complete", "upstream_error": "failed"}


class Histories(Talking, Summarising, Branching, Thinning):
    @initialize(source=st.sampled_from(["chat", "relay"]))
    def begin(self, source: str) -> None:
        self.open(source)

    # Entries.

    @rule(source=st.sampled_from(["chat", "relay"]))
    @precondition(lambda self: len(self.names) < 3)
    def start(self, source: str) -> None:
        self.begin_session(source)

    @rule(pick=PICK, where=WHERE)
    def say(self, pick: int, where: int | None) -> None:
        self.append(pick, where, [model_input(f"{self.word()} please")])

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
        calls += [ToolRequest(call_id="unknown", name="x")] * (surplus == 1)
        outcomes = [
            ToolResult(call_id=call.call_id, name=call.name, status="failed" if failed else "success",
                       parts=(Text(text=self.word()),))
            for call in calls[: len(calls) + min(surplus, 0)]
        ]  # fmt: skip
        if outcomes or surplus:
            self.append(pick, where, [ToolResults(results=tuple(outcomes[::-1] if backwards else outcomes))])

    @rule(picks=st.lists(PICK, min_size=1, max_size=5))
    def batch(self, picks: list[int]) -> None:
        """Entries of several sessions in one transaction, each after the one before it there."""
        names = [self.session(pick) for pick in picks]
        leaves = {name: self.plain.counters(name).head for name in names}
        appends, stored = [], []
        for name in names:
            entry = model_input(self.word())
            appends.append(recorder.Append(UUID(self.names[name]), entry, None))
            stored.append(self.plain.append(name, entry, after=leaves[name]))
            leaves[name] = stored[-1].seq
        appended = recorder.append_batch(appends)
        assert [(one.seq, one.moved_head) for one in appended] == [(one.seq, one.moved_head) for one in stored]
        self.compare_all()

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
            recorder.append_many(
                session, [model_input("lost"), HeadMoved(to=to), model_input("lost too")], after=session.head
            )
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
        assert (permissions.find(self.owner, session.pk, Purpose.LIST) is None) == (name in self.hidden)

    @rule(pick=PICK)
    def hold_or_release(self, pick: int) -> None:
        name = self.session(pick)
        change = retention.release if name in self.held else retention.hold
        assert change(self.real.read(self.names[name]), actor=self.owner, reason="court order")
        self.held ^= {name}


class Summaries(Talking, Summarising, Branching, Thinning):
    """Fewer kinds of steps, so that summaries meet trims, drops and forks in every run."""

    @initialize(today=st.integers(0, 3), tomorrow=st.integers(2, 5))
    def begin(self, today: int, tomorrow: int) -> None:
        self.open("relay")
        self.talk(0, None, today, False)
        self.talk(0, None, tomorrow, True)

    @rule()
    def another_turn(self) -> None:
        self.talk(self.words, None, 1, True)

    # By more names than one, what is to happen more often.
    summarise_more = summarise_still_more = Summarising.summarise
    fork_again = Branching.fork


@pytest.mark.django_db
@pytest.mark.parametrize("steps", [Histories, Summaries])
def test_the_record_does_what_the_model_does(steps: type[SideBySide]) -> None:
    many = int(os.environ.get("PARLEY_STEPS", "1"))
    run_state_machine_as_test(
        steps,
        settings=settings(
            max_examples=example_count(10) * many,
            stateful_step_count=25,
            deadline=None,
            derandomize=many == 1,
            # Shrinking a long run of steps takes minutes; `make faults` has them.
            phases=[Phase.generate] if many == 1 else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
