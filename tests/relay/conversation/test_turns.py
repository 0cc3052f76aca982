"""One turn: the question, the answer, tools in between, and every way in which it can end."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from history.answers.events import ReasoningPiece, TextPiece, ToolCallPiece, UsageReported
from history.entries import ModelOutput, SystemInstructionSet, ToolResults, ToolsOffered, Usage
from history.models import Exchange, Session, ToolCall
from relay import conversation
from relay.conversation import NotPossible
from relay.errors import AccessRefused, Busy, Cut, OverAllowance
from relay.models import Allowance, Run
from relay.providers.base import Model
from relay.runtime.async_db import in_database
from relay.usage import allowances
from relay.usage.prices import Price
from tests.relay.conftest import Talk
from tests.relay.providers.scripted import CUT


def call(name: str, arguments: str = "{}", *, call_id: str = "c1") -> ToolCallPiece:
    return ToolCallPiece(part=call_id, call_id=call_id, name=name, arguments=arguments)


async def test_the_question_is_stored_before_the_answer_and_the_answer_when_it_is_whole(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["Hel", gate, "lo."])
    await talk.begin("Anybody there?")
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    assert await talk.texts() == [("user", "Anybody there?")]
    gate.set()
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    assert await talk.texts() == [("user", "Anybody there?"), ("assistant", "Hello.")]


async def test_instruction_and_tools_are_stored_first_and_when_they_change(talk: Talk) -> None:
    await talk.agent(instruction="Be brief.", tools=["current_time"])
    provider = talk.scripted("One.", "Two.", "Three.")
    await talk.begin("First")
    await talk.until_ended()
    await talk.send("Second")
    await talk.until_ended()
    await talk.agent(instruction="Be long.", tools=["current_time"])
    await talk.send("Third")
    await talk.until_ended()
    entries = await talk.entries()
    state = [entry for entry in entries if isinstance(entry, SystemInstructionSet | ToolsOffered)]
    assert [type(entry).__name__ for entry in entries[:3]] == ["SystemInstructionSet", "ToolsOffered", "ModelInput"]
    assert [entry.text for entry in state] == ["Be brief.", "current_time", "Be long."]
    assert [made.context.system for made in provider.calls] == ["Be brief.", "Be brief.", "Be long."]


async def test_tools_are_run_in_parallel_recorded_with_their_outcome_and_told_to_the_model(talk: Talk) -> None:
    await talk.agent(tools=["current_time", "sys_monitor"])
    asked = [call("current_time", call_id="a"), call("sys_monitor", '{"metric": "cpu"}', call_id="b")]
    provider = talk.scripted(["Let me look.", *asked], "It is late and quiet.")
    await talk.begin("How late is it?")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    assert await talk.kinds() == [
        "system_instruction_set", "tools_offered", "model_input", "model_output", "tool_results", "model_output",
    ]  # fmt: skip
    calls = await in_database(lambda: list(ToolCall.objects.order_by("index")))
    assert [(one.call_id, one.name, one.status) for one in calls] == [
        ("a", "current_time", "success"), ("b", "sys_monitor", "success"),
    ]  # fmt: skip
    assert all(one.duration is not None and one.result for one in calls)
    told = provider.calls[1].context.entries[-1]
    assert [result.call_id for result in told.results] == ["a", "b"]


async def test_one_bad_call_of_several_leaves_no_other_unanswered(talk: Talk) -> None:
    await talk.agent(tools=["current_time"])
    talk.scripted(
        [call("current_time", "{", call_id="a"), call("nonsense", call_id="b"), call("current_time", call_id="c")],
        "Done.",
    )
    await talk.begin()
    await talk.until_ended()
    results = next(entry for entry in await talk.entries() if isinstance(entry, ToolResults))
    assert [result.status for result in results.results] == ["failed", "failed", "success"]


async def test_a_finished_task_is_not_run_again_and_a_new_message_begins_a_new_one(talk: Talk) -> None:
    await talk.agent(tools=["finish_task"])
    provider = talk.scripted([call("finish_task", '{"result": "All done."}')], "What else?")
    await talk.begin("Do it.")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    assert len(provider.calls) == 1
    with pytest.raises(NotPossible, match="finished"):
        await conversation.continue_(talk.user, talk.session)
    await talk.send("Something else.")
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", "What else?")


async def test_a_question_to_the_person_pauses_the_run_and_its_answer_resumes_it(talk: Talk) -> None:
    await talk.agent(tools=["ask_user", "current_time"])
    question = call("ask_user", '{"question": "Which server?"}', call_id="q")
    provider = talk.scripted([question, call("current_time", call_id="t")], "Thank you.")
    await talk.begin("Connect.")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.WAITING
    seq = await talk.head()
    assert await in_database(lambda: ToolCall.objects.get(call_id="q").status) == "pending"
    await conversation.answer(talk.user, talk.session, seq=seq, call_id="q", text="The second one.")
    await talk.until_ended()
    results = next(entry for entry in await talk.entries() if isinstance(entry, ToolResults))
    assert [(result.call_id, result.status) for result in results.results] == [("q", "success"), ("t", "success")]
    assert results.results[0].text == "The second one."
    assert (await talk.texts())[-1] == ("assistant", "Thank you.")
    assert len(provider.calls) == 2
    with pytest.raises(NotPossible, match="no longer waits"):
        await conversation.answer(talk.user, talk.session, seq=seq, call_id="q", text="Again.")


async def test_a_message_instead_of_an_answer_skips_the_question(talk: Talk) -> None:
    await talk.agent(tools=["ask_user"])
    provider = talk.scripted([call("ask_user", '{"question": "Which?"}', call_id="q")], "As you like.")
    await talk.begin("Connect.")
    await talk.until_ended()
    await talk.send("Never mind.")
    await talk.until_ended()
    assert await in_database(lambda: ToolCall.objects.get(call_id="q").status) == "skipped"
    assert (await talk.texts())[-1] == ("assistant", "As you like.")
    [result] = [one for entry in provider.calls[-1].context.entries for one in entry.results or ()]
    assert "did not answer" in (result.text or result.error), "the model is told so, not an empty result"


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        '{"question": "  "}',
        '{"question": "\\u200b\\n\\ufeff"}',
        '{"question": 7}',
        "not JSON",
        '{"choices": ["a"]}',
    ],
)
async def test_a_question_without_words_is_an_error_for_the_model(talk: Talk, arguments: str) -> None:
    await talk.agent(tools=["ask_user"])
    provider = talk.scripted([call("ask_user", arguments, call_id="q")], "I mean: which one?")
    await talk.begin("Connect.")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    [result] = [one for entry in provider.calls[-1].context.entries for one in entry.results or ()]
    assert (result.status, "question" in result.error or "JSON" in result.error) == ("failed", True)
    assert (await talk.texts())[-1] == ("assistant", "I mean: which one?")


@pytest.mark.parametrize("error", [Cut("rubbish"), Cut("silent for 300 seconds", kind="timeout")])
async def test_an_error_before_the_first_word_is_a_failed_answer(talk: Talk, error: Cut) -> None:
    talk.scripted([error])
    await talk.begin("Anybody there?")
    run = await talk.until_ended()
    *_, last = await talk.entries()
    assert (run.outcome, last.kind, last.status, last.error) == (
        Run.Outcome.FAILED,
        ModelOutput.kind,
        "failed",
        str(error),
    )


async def test_of_two_questions_the_one_without_an_answer_is_told_so(talk: Talk) -> None:
    await talk.agent(tools=["ask_user"])
    questions = [call("ask_user", f'{{"question": "{name}?"}}', call_id=name) for name in ("a", "b")]
    talk.scripted(questions, "Thank you.")
    await talk.begin("Connect.")
    await talk.until_ended()
    await conversation.answer(talk.user, talk.session, seq=await talk.head(), call_id="a", text="This one.")
    await talk.until_ended()
    results = next(entry for entry in await talk.entries() if isinstance(entry, ToolResults)).results
    assert [(one.status, one.text or one.error) for one in results] == [
        ("success", "This one."),
        ("skipped", "The user did not answer this question."),
    ]
    assert (await talk.texts())[-1] == ("assistant", "Thank you.")


async def test_a_run_that_calls_tools_without_end_stops_at_its_limit(talk: Talk) -> None:
    await talk.agent(tools=["current_time"], max_steps=3)
    provider = talk.scripted(lambda context, options: [call("current_time", call_id=f"c{len(context.entries)}")])
    await talk.begin()
    run = await talk.until_ended()
    assert (run.outcome, len(provider.calls)) == (Run.Outcome.LIMIT, 3)
    assert await in_database(lambda: ToolCall.objects.exclude(status="success").exists()) is False


async def test_an_early_error_is_a_failed_message_that_no_model_reads(talk: Talk) -> None:
    provider = talk.scripted([AccessRefused("wrong key", kind="authentication")], "Hello.")
    await talk.begin("Anybody?")
    run = await talk.until_ended()
    assert (run.outcome, run.error) == (Run.Outcome.FAILED, "AccessRefused:authentication")
    failed = (await talk.messages())[-1]
    assert (failed.status, failed.content) == ("failed", "【错误】wrong key")
    assert "【错误】" not in str(failed.body)
    await conversation.regenerate(talk.user, talk.session, seq=failed.seq)
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", "Hello.")
    assert "wrong key" not in str(provider.calls[1].context)


async def test_an_answer_that_breaks_off_keeps_what_there_was_and_can_be_continued(talk: Talk) -> None:
    provider = talk.scripted(["The first half", CUT], " and the second.")
    await talk.begin("Tell me.")
    run = await talk.until_ended()
    assert (run.outcome, run.error.split(":")[0]) == (Run.Outcome.FAILED, "Cut")
    cut = (await talk.messages())[-1]
    assert (cut.status, cut.content, cut.end_reason) == ("interrupted", "The first half", "upstream_cut")
    await conversation.continue_(talk.user, talk.session)
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", " and the second.")
    told = [entry.content for entry in provider.calls[1].context.entries]
    assert told[-2:] == ["The first half", "Continue exactly where you stopped."]


async def test_an_error_in_the_middle_keeps_what_was_said(talk: Talk) -> None:
    talk.scripted(["Half an ", Busy("too many requests", kind="overloaded")])
    await talk.begin("Tell me.")
    await talk.until_ended()
    entry = (await talk.entries())[-1]
    assert isinstance(entry, ModelOutput)
    assert (entry.text, entry.status, entry.error) == ("Half an ", "failed", "too many requests")


async def test_what_an_answer_costs_is_frozen_on_its_exchange_and_counted_for_the_person(
    talk: Talk, settings: Any
) -> None:
    settings.PARLEY_PRICES = (Price(model="script", input=Decimal(1_000), output=Decimal(10_000)),)
    talk.scripted(["Yes.", UsageReported(usage=Usage(input_tokens=12, output_tokens=3))])
    await talk.begin("Really?")
    await talk.until_ended()
    settings.PARLEY_PRICES = ()
    exchange = await in_database(Exchange.objects.get)
    assert exchange.cost == Decimal("0.042")
    assert (await in_database(Session.objects.get)).cost == Decimal("0.042")
    assert (await in_database(allowances.spent_today, talk.user)).cost == Decimal("0.042")


async def test_reasoning_tokens_and_durations_are_recorded_with_the_answer(talk: Talk) -> None:
    usage = UsageReported(usage=Usage(input_tokens=12, output_tokens=3))
    talk.scripted([ReasoningPiece(part="r", text="Hm."), TextPiece(part="t", text="Yes."), usage])
    await talk.begin("Really?")
    await talk.until_ended()
    message = (await talk.messages())[-1]
    entry = (await talk.entries())[-1]
    assert (entry.reasoning, entry.text) == ("Hm.", "Yes.")
    assert (message.input_tokens, message.output_tokens, message.model) == (12, 3, "script")
    assert message.latency is not None
    assert message.duration is not None
    assert message.duration >= message.latency
    exchange = await in_database(lambda: Exchange.objects.get(message=message))
    assert (exchange.end_reason, exchange.attempts, exchange.estimated_tokens > 0) == ("done", 1, True)


async def test_the_callers_address_is_kept_with_the_call(talk: Talk) -> None:
    talk.scripted("Hello.")
    await talk.begin(client={"address": "192.0.2.7", "connected_at": "2026-11-16T09:00:00+00:00"})
    await talk.until_ended()
    exchange = await in_database(Exchange.objects.get)
    assert exchange.metadata["address"] == "192.0.2.7"
    assert exchange.metadata["connected_at"] == "2026-11-16T09:00:00+00:00"


async def test_an_agent_may_plan_with_one_model_act_with_another_and_let_a_third_review(talk: Talk) -> None:
    await talk.agent(
        planner_model="scripted/p", reviewer_model="scripted/r", model="scripted/e", tools=["current_time"]
    )
    provider = talk.scripted(
        "1. Look. 2. Tell.", [call("current_time")], "It is noon.", "Nothing is missing.",
        models=[Model(name=name, window=8192) for name in ("e", "p", "r")],
    )  # fmt: skip
    await talk.begin("How late is it?")
    await talk.until_ended()
    assert [made.options.model for made in provider.calls] == ["p", "e", "e", "r"]
    assert [bool(made.context.tools) for made in provider.calls] == [False, True, True, False]
    spoken = [entry for entry in await talk.entries() if isinstance(entry, ModelOutput)]
    assert [(entry.model, entry.metadata.get("role", "")) for entry in spoken] == [
        ("p", "planner"), ("e", ""), ("e", ""), ("r", "reviewer"),
    ]  # fmt: skip
    briefings = [entry for entry in await talk.entries() if entry.is_internal and entry.kind == "model_input"]
    assert len(briefings) == 3


async def test_a_model_of_the_agent_that_is_gone_is_told_and_the_question_is_kept(talk: Talk) -> None:
    talk.scripted("Hello.")
    await talk.agent(model="unknown/model")
    await talk.begin("Anybody?")
    run = await talk.until_ended()
    assert (run.outcome, run.error) == (Run.Outcome.FAILED, "NoSuchModel")
    *_, question, refusal = await talk.messages()
    assert (question.content, refusal.status) == ("Anybody?", "failed")
    assert "unknown/model" in refusal.content
    await conversation.regenerate(talk.user, talk.session, seq=refusal.seq, model="script")
    await talk.until_ended()
    assert await talk.texts() == [("user", "Anybody?"), ("assistant", "Hello.")]


async def test_a_budget_that_is_used_up_between_two_calls_ends_the_turn_with_a_word_about_it(talk: Talk) -> None:
    await talk.agent(tools=["current_time"])
    await in_database(lambda: Allowance.objects.create(user=talk.user, tokens_per_day=100))
    usage = UsageReported(usage=Usage(input_tokens=90, output_tokens=20))
    provider = talk.scripted([call("current_time"), usage], "never")
    await talk.begin("How late is it?")
    run = await talk.until_ended()
    assert (run.outcome, run.error, len(provider.calls)) == (Run.Outcome.FAILED, "OverAllowance", 1)
    last = (await talk.messages())[-1]
    assert last.status == "failed"
    assert "used up" in last.content
    with pytest.raises(OverAllowance):
        await talk.send("And now?")


async def test_a_message_that_cannot_be_taken_leaves_no_session_behind(talk: Talk) -> None:
    talk.scripted("Hello.")
    for text in ("", "   ", "x" * 400_001, "/help"):
        with pytest.raises(NotPossible):
            await conversation.start_session(talk.user, conversation.MessageDraft(text=text))
    assert await in_database(Session.objects.count) == 0
