"""The task plan: kept by the agent, each change an entry, told to the model, shown on the page, live and afterwards."""

from __future__ import annotations

import asyncio
import json

import pytest

from history.answers.events import ToolCallPiece
from history.entries import PlanSet, ToolResults
from history.record import selectors
from relay import conversation
from relay.models import Run
from relay.runtime.async_db import in_database
from relay.tools.built_in.plans import NONE_YET, Step, plan_notice, read_plan
from tests.relay.conftest import Talk

FIRST, SECOND = "- [~] Look\n- [ ] Repair", "- [x] Look\n- [~] Repair"


def planned(text: str, *, call_id: str = "p") -> ToolCallPiece:
    arguments = json.dumps({"plan": text})
    return ToolCallPiece(part=call_id, call_id=call_id, name="update_plan", arguments=arguments)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("- [ ] Look", Step(text="Look")),
        ("* [x] Look", Step(text="Look", state="done")),
        ("2. [X] Look ", Step(text="Look", state="done")),
        ("- [~] Look", Step(text="Look", state="doing")),
        ("  - [>] Look [at] it", Step(text="Look [at] it", state="doing", level=1)),
    ],
)
def test_a_step_is_an_item_with_a_box(line: str, step: Step) -> None:
    assert read_plan(f"# The plan\n\n{line}\n- no step\n[ ] neither").steps == (step,)


def test_a_plan_says_how_far_it_is_and_what_comes_next() -> None:
    plan = read_plan("- [x] a\n- [ ] b\n- [~] c")
    assert (plan.done, plan.is_done, plan.current) == (1, False, Step(text="c", state="doing"))
    assert read_plan("- [x] a\n- [ ] b").current == Step(text="b")
    assert plan_notice("- [x] a") is None


async def test_each_change_of_the_plan_is_an_entry_behind_its_results_and_the_newest_is_told(talk: Talk) -> None:
    await talk.agent(tools=["update_plan", "current_time"])
    provider = talk.scripted([planned(FIRST)], [planned(SECOND)], "Half of it is done.")
    await talk.begin("Mend it.")
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    assert (await talk.kinds())[3:] == [
        "model_output", "tool_results", "plan_set", "model_output", "tool_results", "plan_set", "model_output",
    ]  # fmt: skip
    plans = [entry for entry in await talk.entries() if isinstance(entry, PlanSet)]
    assert [(entry.plan, entry.agent) for entry in plans] == [(FIRST, "assistant"), (SECOND, "assistant")]
    screens = [made.context.entries[-1].live_screen or "" for made in provider.calls]
    assert screens[0] == NONE_YET
    assert [FIRST in screens[1], SECOND in screens[2]] == [True, True]
    results = next(entry for entry in await talk.entries() if isinstance(entry, ToolResults))
    assert results.text == "Plan saved: 0 of 2 steps are done."


async def test_an_agent_that_keeps_no_plan_is_told_of_none(talk: Talk) -> None:
    await talk.agent(tools=["current_time"])
    provider = talk.scripted("Hello.")
    await talk.begin()
    await talk.until_ended()
    assert provider.calls[0].context.entries[-1].live_screen is None


async def test_a_plan_without_steps_is_refused_and_an_empty_one_takes_it_away(talk: Talk) -> None:
    await talk.agent(tools=["update_plan"])
    talk.scripted(
        [planned(FIRST, call_id="a")], [planned("Just do it", call_id="b"), planned("", call_id="c")], "Done."
    )
    await talk.begin()
    await talk.until_ended()
    outcomes = [
        result.status for entry in await talk.entries() if isinstance(entry, ToolResults) for result in entry.results
    ]
    assert outcomes == ["success", "failed", "success"]
    assert [entry.plan for entry in await talk.entries() if isinstance(entry, PlanSet)] == [FIRST, ""]
    assert await in_database(lambda: selectors.plan_at(talk.session)) == ""


async def test_of_two_plans_in_one_answer_the_last_one_holds(talk: Talk) -> None:
    await talk.agent(tools=["update_plan"])
    talk.scripted([planned(FIRST, call_id="a"), planned(SECOND, call_id="b")], "Done.")
    await talk.begin()
    await talk.until_ended()
    assert await in_database(lambda: selectors.plan_at(talk.session)) == SECOND


async def test_a_branch_has_the_plan_that_held_there(talk: Talk) -> None:
    await talk.agent(tools=["update_plan"])
    talk.scripted([planned(FIRST)], "First.", [planned(SECOND)], "Second.")
    await talk.begin()
    await talk.until_ended()
    leaf = await talk.head()
    await talk.send("Go on.")
    await talk.until_ended()
    assert await in_database(lambda: selectors.plan_at(talk.session)) == SECOND
    await conversation.rollback(talk.user, talk.session, to=leaf)
    assert await in_database(lambda: selectors.plan_at(talk.session)) == FIRST


async def test_a_plan_that_is_stopped_before_its_call_has_ended_is_not_kept(talk: Talk) -> None:
    await talk.agent(tools=["update_plan"])
    talk.scripted([planned(FIRST), "…", asyncio.Event()])
    await talk.begin()
    await talk.until(lambda: Run.objects.filter(ended_at=None).exists())
    await talk.stop()
    await talk.until_ended()
    assert await in_database(lambda: selectors.plan_at(talk.session)) == ""


async def test_a_person_can_write_the_plan_too(talk: Talk) -> None:
    await talk.agent(tools=["update_plan"])
    await talk.begin("/update_plan - [ ] Buy milk")
    assert await in_database(lambda: selectors.plan_at(talk.session)) == "- [ ] Buy milk"
