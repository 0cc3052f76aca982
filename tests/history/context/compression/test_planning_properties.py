"""Compression of any history to any size: the context is valid and has the current task."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from history.context.compression.planning import (
    CompressionPlan,
    CompressionPolicy,
    SummaryOutcome,
    entries_of_plan,
    make_plan,
)
from history.context.compression.summaries import ProblemCode
from history.context.messages import pieces_of
from history.context.rendering import may_begin_turn, render_context
from history.context.repair import find_unpaired
from history.context.values import Context, ContextOptions, Remark
from history.dialects import DIALECTS, CallOptions
from history.entries import Entry, ModelInput, ModelOutput, Node, ToolResults
from tests.factories import example_count
from tests.history.context.strategies import paths, snapshot_of
from tests.vendors.rules import problem_with
from tests.vendors.test_vendors import HEADERS

pytestmark = pytest.mark.no_database

MANY = settings(max_examples=example_count(80), deadline=None)
UNLIMITED = ContextOptions(max_turns=None)
POLICIES = st.builds(
    CompressionPolicy,
    target=st.integers(1, 500),
    max_tokens=st.integers(1, 700),
    summary_tokens=st.sampled_from([10, 60]),
    keep_turns=st.sampled_from([None, 1, 2]),
    keep_results=st.integers(0, 3),
    bulky=st.sampled_from([1, 30, 200]),
    least=st.sampled_from([0, 40]),
    is_asked=st.booleans(),
)
REFUSED = Remark(code=ProblemCode.EMPTY)


def rendered(nodes: tuple[Node, ...], options: ContextOptions = UNLIMITED) -> Context:
    return render_context(snapshot_of(nodes), options)


def carried_out(
    nodes: tuple[Node, ...], plan: CompressionPlan, policy: CompressionPolicy, accepts: tuple[bool, bool]
) -> tuple[Node, ...]:
    """The path with what became of the plan behind it; a summary is written where that is accepted."""
    texts = [SummaryOutcome(stretch=one, text="in short") if good else SummaryOutcome(stretch=one, problem=REFUSED)
             for one, good in zip(plan.stretches, accepts, strict=False)]  # fmt: skip
    for entry in entries_of_plan(plan, texts, policy, why="asked", agent=""):
        nodes = after(nodes, entry)
    return nodes


def after(nodes: tuple[Node, ...], entry: Entry) -> tuple[Node, ...]:
    last = nodes[-1].seq if nodes else 0
    return (*nodes, Node(seq=last + 1, parent=last, entry=entry))


def task_of(context: Context, nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """The newest user input in the context."""
    inputs = {n.seq for n in nodes if isinstance(n.entry, ModelInput) and may_begin_turn(n.entry)}
    return next((entry.origin for entry in reversed(context.entries) if {*entry.origin} & inputs), ())


@MANY
@given(paths(), POLICIES, st.tuples(st.booleans(), st.booleans()), st.sampled_from([1.0, 1.4]))
def test_the_result_is_valid_for_every_vendor_and_contains_the_current_task(
    path: tuple[Node, ...], policy: CompressionPolicy, accepts: tuple[bool, bool], factor: float
) -> None:
    options = ContextOptions(max_turns=None, calibration=factor)
    plan = make_plan(snapshot_of(path), options, policy)
    assert make_plan(snapshot_of(path), options, policy) == plan
    before, nodes = rendered(path), carried_out(path, plan, policy, accepts)
    told = rendered(nodes)
    assert find_unpaired(told.entries) == ()
    if task := task_of(before, path):
        assert [entry for entry in before.entries if entry.origin == task] == [
            entry for entry in told.entries if entry.origin == task
        ]
    for name, dialect in DIALECTS.items():
        body = json.loads(json.dumps(dialect.encode(told, CallOptions(model="m", max_tokens=50)).body))
        if told.entries:
            assert problem_with(name, {"model": "m", **body}, HEADERS, {"s"}) is None


@MANY
@given(paths(), POLICIES)
def test_a_stretch_never_has_a_call_whose_result_stays_nor_a_result_whose_call_does(
    path: tuple[Node, ...], policy: CompressionPolicy
) -> None:
    plan = make_plan(snapshot_of(path), UNLIMITED, policy)
    answered = pairs_in(pieces_of(snapshot_of(path)))
    for stretch in plan.stretches:
        inside = {node.seq for node in stretch.pieces}
        told = {node.seq for node in path if not stretch.covers(node.seq)}
        assert not any((call in inside) != (result in inside) for call, result in answered if {call, result} & told)


def pairs_in(path: Sequence[Node]) -> set[tuple[int, int]]:
    """Calls and results that a vendor would take for a pair where they stand: nothing but results lies between."""
    pairs, asked = set(), Node(seq=0, parent=0, entry=ModelInput())
    for node in path:
        if isinstance(node.entry, ToolResults) and isinstance(asked.entry, ModelOutput):
            calls = {call.call_id for call in asked.entry.tool_requests}
            if calls & {result.call_id for result in node.entry.results}:
                pairs.add((asked.seq, node.seq))
        elif isinstance(node.entry, ModelInput | ModelOutput):
            asked = node
    return pairs


@MANY
@given(paths(), POLICIES, st.tuples(st.booleans(), st.booleans()))
def test_to_plan_again_and_again_comes_to_an_end(
    path: tuple[Node, ...], policy: CompressionPolicy, accepts: tuple[bool, bool]
) -> None:
    """Each step tells less, or only says why there is no summary; nothing is summarised twice for ever."""
    nodes = path
    for _ in range(len(path) + 2):
        plan = make_plan(snapshot_of(nodes), UNLIMITED, policy)
        grown = carried_out(nodes, plan, policy, accepts)
        if not plan or all(not node.entry.first and not node.entry.masks for node in grown[len(nodes) :]):  # type: ignore[attr-defined]
            return
        nodes = grown
    raise AssertionError("it went on and on")
