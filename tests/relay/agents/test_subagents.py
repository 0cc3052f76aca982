"""Several agents: one calls another, whose answer comes back; limits, stopping, budgets, and what each may read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from history.answers.events import ToolCallPiece, UsageReported
from history.context.values import Context
from history.dialects import CallOptions
from history.entries import ModelInput, ToolResults, Usage, text_of
from history.models import Exchange, Message, Session, ToolCall
from history.record.selectors import entries_of, messages_of
from relay import conversation
from relay.agents.turn import TurnBudget
from relay.live import lost_runs, runs
from relay.models import Agent, Run
from relay.runtime.async_db import in_database
from relay.usage import allowances
from relay.usage.prices import Price
from tests.relay.conftest import Talk
from tests.relay.providers.scripted import Steps

Say = Callable[[Context], Steps]


def call_agent(agent: str, task: str = "Find it.", *, call_id: str = "c1") -> ToolCallPiece:
    arguments = json.dumps({"agent": agent, "task": task})
    return ToolCallPiece(part=call_id, call_id=call_id, name="call_agent", arguments=arguments)


def use(tool: str, *, call_id: str = "t1", **arguments: Any) -> ToolCallPiece:
    return ToolCallPiece(part=call_id, call_id=call_id, name=tool, arguments=json.dumps(arguments))


def by_agent(**says: Steps | Say) -> Callable[[Context, CallOptions], Steps]:
    """Each agent says its own: they are told apart by their instructions."""

    def answer(context: Context, options: CallOptions) -> Steps:
        says_it = next(says[name] for name in says if context.system == f"I am {name}.")
        return says_it(context) if callable(says_it) else says_it

    return answer


def has_results(context: Context) -> bool:
    return any(entry.results for entry in context.entries)


def result_in(context: Context) -> str:
    results = [result for entry in context.entries for result in entry.results or ()]
    return results[-1].text or results[-1].error


async def agents(talk: Talk, **tools: list[str]) -> None:
    """These agents and no others, the first of them the one that answers."""
    await talk.agent(name="gone")
    await in_database(Agent.objects.all().delete)
    for name, has in tools.items():
        fields = {"name": name, "instruction": f"I am {name}.", "tools": has, "is_default": name == next(iter(tools))}
        await in_database(Agent.objects.create, **fields)


async def change(name: str, **fields: Any) -> None:
    await in_database(lambda: Agent.objects.filter(name=name).update(**fields))


async def child_of(talk: Talk) -> Session:
    return await in_database(lambda: Session.objects.get(parent=talk.session))


async def results_of(session: Session) -> list[tuple[str, str]]:
    entries = await in_database(lambda: entries_of(messages_of(session, limit=100).messages))
    return [
        (result.status, result.text or result.error)
        for entry in entries
        if isinstance(entry, ToolResults)
        for result in entry.results
    ]


async def test_a_called_agent_answers_in_a_session_below_and_its_answer_is_the_result(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=["current_time"])
    provider = talk.scripted(
        ["I ask.", call_agent("scout", "Find the lighthouse.")], "It stands on the rock.", "Found."
    )
    await talk.begin("Where is the lighthouse?")
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    assert (await talk.texts())[-1] == ("assistant", "Found.")
    assert await results_of(talk.session) == [("success", "It stands on the rock.")]
    child = await child_of(talk)
    assert (child.agent, child.parent_call, child.title, child.owner_id) == (
        "scout", "c1", "Find the lighthouse.", talk.user.pk,
    )  # fmt: skip
    # It began with its own instruction and its task, and nothing of what was said above.
    told = provider.calls[1].context
    assert told.system == "I am scout."
    assert [text_of(entry.parts) for entry in told.entries] == ["Find the lighthouse."]


async def test_the_entries_of_each_agent_carry_its_name(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=[])
    talk.scripted([call_agent("scout")], "Here.", "Found.")
    await talk.begin()
    await talk.until_ended()
    child = await child_of(talk)
    named = await in_database(lambda: set(Message.objects.values_list("session", "kind", "agent")))
    assert {(kind, agent) for session, kind, agent in named if session == child.pk} == {
        ("system_instruction_set", "scout"), ("tools_offered", "scout"), ("model_input", ""), ("model_output", "scout"),
    }  # fmt: skip
    assert {agent for session, kind, agent in named if session == talk.session.pk} == {"", "boss"}


async def test_an_agent_that_may_call_others_gets_their_names(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=[], cook=[])
    provider = talk.scripted([call_agent("cook")], "Well.")
    await change("boss", agents=["scout"])
    await talk.begin()
    await talk.until_ended()
    tool = provider.calls[0].context.tools[0]
    assert tool.parameters["properties"]["agent"]["enum"] == ("scout",)
    assert "scout: I am scout." in tool.description
    assert [(status, "Available agents: scout" in text) for status, text in await results_of(talk.session)] == [
        ("failed", True)
    ]


async def test_without_anybody_to_call_the_tool_is_not_offered(talk: Talk) -> None:
    await agents(talk, boss=["call_agent", "current_time"])
    provider = talk.scripted("Alone.")
    await talk.begin()
    await talk.until_ended()
    assert [tool.name for tool in provider.calls[0].context.tools] == ["current_time"]


async def test_a_called_agent_reads_its_caller_up_to_the_call_and_calls_none(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=["ask_user"])
    provider = talk.scripted(
        [call_agent("scout")], [use("read_caller"), use("ask_user", call_id="t2", question="Which?")], "Here.", "Found."
    )
    await talk.begin("The password is heron.")
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    assert [tool.name for tool in provider.calls[1].context.tools] == ["read_caller"]
    (read, heard), (asked, _) = await results_of(await child_of(talk))
    assert (read, asked) == ("success", "failed")
    assert "The password is heron." in heard
    assert "→ call_agent" in heard


async def test_a_called_agent_reads_the_branch_that_it_was_called_from(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=[])
    talk.scripted("First.", [call_agent("scout")], [use("read_caller")], "Here.", "Found.")
    await talk.begin("The old question.")
    await talk.until_ended()
    seq = next(m.seq for m in await talk.messages() if m.kind == ModelInput.kind)
    await conversation.edit(talk.user, talk.session, seq=seq, draft=conversation.MessageDraft(text="The new question."))
    await talk.until_ended()
    (_, heard), *_ = await results_of(await child_of(talk))
    said = heard.splitlines()[1:]  # behind the title
    assert ["The new question." in said, "The old question." in said] == [True, False]


async def test_an_agent_that_was_not_called_has_no_caller_to_read(talk: Talk) -> None:
    await agents(talk, boss=["read_caller"])
    talk.scripted([use("read_caller")], "So.")
    await talk.begin()
    await talk.until_ended()
    assert await results_of(talk.session) == [("failed", "No agent called you: you are talking to the user.")]


async def test_two_agents_that_call_each_other_end_at_the_depth_limit_which_says_so(talk: Talk, settings: Any) -> None:
    settings.PARLEY_AGENT_DEPTH = 2
    await agents(talk, ping=["call_agent"], pong=["call_agent"])
    said: Say = lambda context: f"I heard: {result_in(context)}"  # noqa: E731
    talk.scripted(
        by_agent(
            ping=lambda context: said(context) if has_results(context) else [call_agent("pong")],
            pong=lambda context: said(context) if has_results(context) else [call_agent("ping")],
        )
    )
    await talk.begin()
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    assert await in_database(Session.objects.count) == 3
    assert await in_database(lambda: Run.objects.filter(ended_at=None).count()) == 0
    assert "Agents can call each other at most 2 levels deep" in (await talk.texts())[-1][1]


async def test_so_many_agents_are_called_in_one_turn_and_no_more(talk: Talk, settings: Any) -> None:
    settings.PARLEY_AGENT_CALLS = 2
    await agents(talk, boss=["call_agent"], scout=[])
    calls = [call_agent("scout", call_id=f"c{number}") for number in range(3)]
    talk.scripted(by_agent(boss=lambda context: "So." if has_results(context) else calls, scout="Here."))
    await talk.begin()
    await talk.until_ended()
    assert sorted(await results_of(talk.session))[0] == (
        "failed", "No more agents can be called in this turn. Do the rest yourself.",
    )  # fmt: skip
    assert await in_database(lambda: Session.objects.filter(parent=talk.session).count()) == 2


async def test_what_a_called_agent_uses_counts_for_the_person_and_for_the_turn_above(talk: Talk, settings: Any) -> None:
    settings.PARLEY_PRICES = (Price(model="script", input=Decimal(1_000), output=Decimal(10_000)),)
    used = UsageReported(usage=Usage(input_tokens=900, output_tokens=100))
    await agents(talk, boss=["call_agent"], scout=[])
    await change("boss", max_turn_tokens=1500)
    provider = talk.scripted([call_agent("scout"), used], ["Here.", used], "Never said.")
    await talk.begin()
    run = await talk.until_ended()
    assert (run.outcome, len(provider.calls)) == (Run.Outcome.LIMIT, 2)
    assert await results_of(talk.session) == [("success", "Here.")]
    spent = await in_database(lambda: allowances.spent_today(talk.user))
    assert (spent.tokens, spent.cost, spent.messages) == (2000, Decimal("3.8"), 1)
    assert await in_database(lambda: Exchange.objects.filter(owner=talk.user).count()) == 2


@pytest.mark.any_database
def test_a_budget_below_another_counts_for_both_and_ends_with_either() -> None:
    above = TurnBudget(tokens=100, calls=1)
    below = above.below(tokens=30)
    below.spend(40)
    assert (above.is_used_up, below.is_used_up) == (False, True)
    free = above.below(tokens=None)
    free.spend(60)
    assert (above.is_used_up, free.is_used_up) == (True, True)
    assert (free.take_call(), above.take_call()) == (True, False)


async def test_stop_stops_the_tree_and_every_session_of_it_says_so(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=["call_agent"], cook=[])
    talk.scripted([call_agent("scout")], [call_agent("cook")], ["Half", asyncio.Event()])
    await talk.begin()
    await talk.until(lambda: Exchange.objects.filter(session__agent="cook", ended_at=None).exists())
    assert await in_database(lambda: Run.objects.filter(ended_at=None).count()) == 3
    await talk.stop()
    await talk.until_ended()
    assert await in_database(lambda: set(Run.objects.values_list("outcome", flat=True))) == {"stopped"}
    assert await in_database(lambda: set(ToolCall.objects.values_list("status", flat=True))) == {"interrupted"}
    half = await in_database(lambda: Message.objects.get(agent="cook", kind="model_output"))
    assert (half.content, half.status) == ("Half", "interrupted")


async def test_a_called_agent_that_is_stopped_by_itself_costs_its_caller_one_failed_call(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=[])
    talk.scripted([call_agent("scout")], ["Half", asyncio.Event()], "Then without it.")
    await talk.begin()
    await talk.until(lambda: Exchange.objects.filter(session__agent="scout", ended_at=None).exists())
    await conversation.stop(await child_of(talk))
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    (status, told), *_ = await results_of(talk.session)
    assert (status, told) == ("failed", "The agent scout was stopped by the user.\n\nIts last text: Half")
    assert (await talk.texts())[-1] == ("assistant", "Then without it.")


async def test_an_agent_that_fails_or_comes_to_its_limit_says_so_to_its_caller(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], lazy=["current_time"], dumb=[])
    await change("lazy", max_steps=1)
    await change("dumb", model="unknown/model")
    calls = [call_agent("lazy", call_id="a"), call_agent("dumb", call_id="b")]
    talk.scripted(
        by_agent(
            boss=lambda context: "So." if has_results(context) else calls, lazy=["Let me see.", use("current_time")]
        )
    )
    await talk.begin()
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    (lazy, why_lazy), (dumb, why_dumb) = await results_of(talk.session)
    assert (lazy, dumb) == ("failed", "failed")
    assert why_lazy.startswith("The agent lazy stopped at a limit before the task was done.")
    assert why_dumb.startswith("The agent dumb failed: NoSuchModel.")


async def test_the_result_that_a_called_agent_finishes_with_is_its_answer(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=["finish_task"])
    talk.scripted([call_agent("scout")], ["I have it.", use("finish_task", result="The rock.")], "Found.")
    await talk.begin()
    await talk.until_ended()
    assert await results_of(talk.session) == [("success", "The rock.")]


async def test_a_process_that_dies_leaves_no_run_of_the_tree_going(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    await agents(talk, boss=["call_agent"], scout=[])
    talk.scripted([call_agent("scout")], ["Half", asyncio.Event()])
    await talk.begin()
    await talk.until(lambda: Exchange.objects.filter(session__agent="scout", ended_at=None).exists())
    await in_database(_grow_old)
    with monkeypatch.context() as another_process:  # a process does not sweep its own runs
        another_process.setattr(lost_runs, "local_tasks", {})
        await in_database(lost_runs.sweep)
    assert await in_database(lambda: list(Run.objects.values_list("outcome", flat=True))) == ["lost", "lost"]
    await runs.stop_all()


def _grow_old() -> None:
    """As if their process had sent no heartbeat for an hour."""
    for rows in (Run.objects.all(), Exchange.objects.filter(ended_at=None)):
        rows.update(heartbeat_at=F("heartbeat_at") - timedelta(hours=1))


async def test_the_end_of_the_server_ends_the_tree_in_good_order(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=[])
    talk.scripted([call_agent("scout")], ["Half", asyncio.Event()])
    await talk.begin()
    await talk.until(lambda: Exchange.objects.filter(session__agent="scout", ended_at=None).exists())
    await runs.stop_all()
    assert await in_database(lambda: set(Run.objects.values_list("outcome", flat=True))) == {"lost"}
    assert await in_database(lambda: ToolCall.objects.get().status) == "interrupted"


async def test_a_change_of_the_instruction_is_an_entry_also_where_an_answer_only_goes_on(talk: Talk) -> None:
    await agents(talk, boss=[])
    provider = talk.scripted(["Half", asyncio.Event()], "And the rest.")
    await talk.begin()
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    await talk.stop()
    await talk.until_ended()
    await change("boss", instruction="I am gentle.")
    await conversation.continue_(talk.user, talk.session)
    await talk.until_ended()
    assert provider.calls[1].context.system == "I am gentle."
    assert (await talk.kinds())[-3:] == ["system_instruction_set", "model_input", "model_output"]


async def test_a_child_session_can_be_continued_by_the_person_like_any_other(talk: Talk) -> None:
    await agents(talk, boss=["call_agent"], scout=[])
    talk.scripted([call_agent("scout")], "Here.", "Found.", "On the left.")
    await talk.begin()
    await talk.until_ended()
    talk.session = await child_of(talk)
    await talk.send("Where exactly?")
    await talk.until_ended()
    assert (await talk.texts())[-2:] == [("user", "Where exactly?"), ("assistant", "On the left.")]
