"""What is masked, what is summarised and what stays: the rules, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from history.context.compression.planning import (
    CompressionPlan,
    CompressionPolicy,
    SummaryOutcome,
    entries_of_plan,
    make_plan,
    stretch_between,
)
from history.context.compression.summaries import ProblemCode
from history.context.rendering import render_context
from history.context.values import ContextOptions, Remark, Snapshot
from history.entries import Entry, MaskedResult, Node, Summary
from tests.factories import model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.no_database

UNLIMITED = ContextOptions(max_turns=None)
LONG = "a word or two " * 60  # some 200 tokens
LOST = Remark(code=ProblemCode.LOSES, values={"identifier": "AB-12"})


def snapshot(*entries: Entry) -> Snapshot:
    nodes = [Node(seq=seq, parent=seq - 1, entry=entry) for seq, entry in enumerate(entries, 1)]
    return Snapshot(session_id="s1", version=len(nodes), nodes=tuple(nodes))


def planned(*entries: Entry, **policy: Any) -> CompressionPlan:
    wanted = CompressionPolicy(**{"target": 400, "max_tokens": 800, "summary_tokens": 50} | policy)
    return make_plan(snapshot(*entries), UNLIMITED, wanted)


def turns(count: int, text: str = LONG) -> list[Entry]:
    return [
        entry for n in range(1, count + 1) for entry in (model_input(f"question {n}"), model_output(f"{n}: {text}"))
    ]


def steps(count: int, text: str = LONG) -> list[Entry]:
    return [
        entry
        for n in range(count)
        for entry in (model_output("", tool_request(f"c{n}")), tool_results(tool_result(f"c{n}", text)))
    ]


def spans(plan: CompressionPlan) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in plan.stretches]


def rendered_text(*entries: Entry) -> str:
    return "\n".join(entry.content for entry in render_context(snapshot(*entries), UNLIMITED).entries)


def written(plan: CompressionPlan, *texts: str, **policy: Any) -> list[Summary]:
    """What is appended, where the summariser wrote these texts; an empty one was refused."""
    made = [SummaryOutcome(stretch=one, text=text, problem=None if text else LOST)
            for one, text in zip(plan.stretches, texts, strict=True)]  # fmt: skip
    wanted = CompressionPolicy(**{"target": 400, "max_tokens": 800} | policy)
    return entries_of_plan(plan, made, wanted, why="full", agent="assistant")


def test_old_bulky_results_are_masked_first_and_the_newest_stay_whole() -> None:
    plan = planned(model_input("look"), *steps(6), model_output("done"), target=1_000, keep_results=2)
    assert plan.masks == tuple(MaskedResult(seq=seq, index=0) for seq in (3, 5, 7, 9))
    assert plan.stretches == ()


def test_results_that_are_not_bulky_are_left_alone() -> None:
    assert not planned(model_input("look"), *steps(6, text="3 %"), model_output("done"), target=1_000)


def test_a_context_that_fits_needs_no_plan_unless_requested() -> None:
    assert not planned(*turns(3), target=2_000)
    assert spans(planned(*turns(3), target=2_000, keep_turns=1, is_asked=True)) == [(1, 4)]


def test_the_newest_turns_that_fit_stay_as_they_are_and_all_before_them_is_one_stretch() -> None:
    plan = planned(*turns(8), target=650)
    assert spans(plan) == [(1, 12)]
    assert plan.stretches[0].messages == 12


def test_the_earlier_summary_is_merged_and_its_range_with_it() -> None:
    earlier = Summary(first=1, last=10, summary="five questions")
    plan = planned(*turns(8), earlier, *turns(1), target=400)
    assert spans(plan) == [(1, 16)]
    assert plan.stretches[0].earlier == (earlier,)
    assert plan.stretches[0].messages == 6


def test_nothing_but_a_summary_is_not_summarised_again() -> None:
    assert not planned(*turns(3), Summary(first=1, last=6, summary=LONG * 3), model_input("next"), target=100)


def test_a_long_turn_keeps_its_task_and_last_steps() -> None:
    plan = planned(*turns(2), model_input("the task"), *steps(6, text="a word " * 60), target=450, bulky=1_000)
    assert spans(plan) == [(1, 4), (6, 13)]
    assert [one.within_turn for one in plan.stretches] == [False, True]


def test_a_cut_is_never_between_a_call_and_its_result() -> None:
    for target in range(60, 900, 20):
        plan = planned(model_input("the task"), *steps(5), target=target, bulky=10_000)
        assert all((one.last - 1) % 2 == 0 for one in plan.stretches), "each stretch ends with a result"


def test_a_newest_result_that_fits_nowhere_is_masked_after_all() -> None:
    plan = planned(
        model_input("the task"), model_output("", tool_request("c1")), tool_results(tool_result("c1", LONG * 20))
    )
    assert plan.masks == (MaskedResult(seq=3, index=0),)
    assert plan.kept < 200


def test_a_summary_says_how_many_messages_it_stands_for_and_needs_no_masks_of_its_own() -> None:
    history = [*turns(2), model_input("look"), *steps(5), model_output("done"), model_input("the task")]
    plan = planned(*history, target=300)
    assert plan.masks
    (summary,) = written(plan, "in short")
    assert (summary.first, summary.last, summary.masks) == (1, 16, ())
    assert summary.metadata["messages"] == 16
    assert summary.metadata["tokens_before"] == plan.tokens
    assert "the task" in rendered_text(*history, summary)


def test_a_refused_summary_leaves_what_does_not_fit_out_and_says_why() -> None:
    history = turns(8)
    plan = planned(*history, target=650)
    (left,) = written(plan, "")
    assert (left.first, left.last, left.summary) == (1, 12, "")
    assert left.metadata["how"] == "left_out"
    assert (left.metadata["problem"], left.metadata["problem_values"]) == ("loses", {"identifier": "AB-12"})
    assert "[Entries 1 to 12 of session s1 were left out here" in rendered_text(*history, left)


def test_a_refused_summary_costs_only_the_oldest_turns_that_must_go() -> None:
    history = turns(12)
    plan = planned(*history, keep_turns=1, max_tokens=2_000, target=1_000)
    assert spans(plan) == [(1, 22)]
    (left,) = written(plan, "", max_tokens=2_000, target=1_000)
    assert (left.first, left.last, left.metadata["messages"]) == (1, 12, 12)
    context = render_context(snapshot(*history, left), UNLIMITED)
    assert 1_250 < context.tokens <= 1_500, "half of the way from where it must fit to where it should be"


def test_within_a_long_turn_as_well_only_the_oldest_steps_go_each_with_its_result() -> None:
    history = [model_input("the task"), *steps(12)]
    plan = planned(*history, bulky=10_000, max_tokens=2_000, target=400)
    (left,) = written(plan, "", max_tokens=2_000, target=1_000)
    assert (left.first, left.within_turn) == (2, True)
    assert left.last < plan.stretches[0].last
    assert (left.last - 1) % 2 == 0, "it ends with a result"


def test_a_refused_summary_keeps_what_the_one_before_it_said() -> None:
    earlier = Summary(first=1, last=10, summary="five questions")
    plan = planned(*turns(8), earlier, *turns(1))
    (left,) = written(plan, "")
    assert left.summary.startswith("five questions\n\n(What came after this, up to entry 14, was left out")
    again = planned(*turns(8), earlier, *turns(1), left, *turns(3))
    (more,) = written(again, "", max_tokens=1)
    assert more.summary.startswith("five questions\n\n(What came after this, up to entry 24, was left out")
    assert more.summary.count("left out") == 1


def test_a_refused_summary_of_what_fits_changes_nothing_but_is_told() -> None:
    plan = planned(*turns(3), keep_turns=1, is_asked=True)
    (note,) = written(plan, "", max_tokens=2_000)
    assert (note.first, note.masks, note.metadata["problem"]) == (0, (), "loses")
    assert rendered_text(*turns(3), note) == rendered_text(*turns(3))


def test_three_hundred_turns_stay_within_a_small_window_with_any_summary() -> None:
    """The same with a database and a loop is in `make bench`."""
    policy = CompressionPolicy(target=1_425, max_tokens=2_850, summary_tokens=356)
    history: list[Entry] = []
    for turn in range(300):
        history += [
            model_input(f"task {turn}"),
            model_output("", tool_request(f"c{turn}")),
            tool_results(tool_result(f"c{turn}", LONG)),
        ]
        taken = snapshot(*history)
        if render_context(taken, UNLIMITED).tokens > policy.max_tokens:
            plan = make_plan(taken, UNLIMITED, policy)
            texts = ["in short" if turn % 3 else ""] * len(plan.stretches)
            history += written(plan, *texts, max_tokens=policy.max_tokens)
        context = render_context(snapshot(*history), UNLIMITED)
        assert context.tokens <= policy.max_tokens
        assert f"task {turn}" in [entry.content for entry in context.entries]
        history.append(model_output(f"answer {turn}: {LONG}"))


def test_summarising_again_ignores_the_old_summary() -> None:
    stretch = stretch_between(snapshot(*turns(3)), first=1, last=4)
    assert stretch is not None
    assert (len(stretch.pieces), stretch.tokens > 300) == (4, True)
    assert stretch_between(snapshot(*turns(3)), first=9, last=12) is None
