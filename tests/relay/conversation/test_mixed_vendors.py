"""One session, many vendors: through the real dialer, each request judged by the vendor that gets it."""

from __future__ import annotations

import base64
import json
from itertools import pairwise

import pytest

from history.answers.events import TextPiece, ToolCallPiece
from history.dialects import DIALECTS
from history.entries import ModelInput, ModelOutput, Reasoning, ToolResults
from history.models import Exchange, ToolCall
from relay.models import Agent, Run
from relay.providers.registry import Router
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.vendors import Play, Seen, Vendors, says, thinks
from tests.vendors.setup import NAMES

# What vendors are told is rendered from values.
pytestmark = pytest.mark.any_database

# Whose thinking is signed, and with what. OpenAI's older language knows no signatures.
SIGNATURES = {
    dialect: base64.b64encode(f"signed by {dialect}".encode()).decode()
    for dialect in ("anthropic-messages", "openai-responses", "gemini-generate")
}


def model(dialect: str) -> str:
    return f"{NAMES.get(dialect, dialect)}/model"


def calls(*names: str, mark: str) -> list[ToolCallPiece]:
    arguments = {"sys_monitor": '{"metric": "cpu"}'}
    return [
        ToolCallPiece(part=f"{mark}-{name}", call_id=f"{mark}-{name}", name=name, arguments=arguments.get(name, "{}"))
        for name in names
    ]


def signatures_in(seen: Seen) -> set[str]:
    """Whose signed thinking went out with it."""
    body = json.dumps(seen.body)
    return {dialect for dialect, signature in SIGNATURES.items() if signature in body}


def plays_of_a_task(vendors: Vendors) -> None:
    plan, act = SIGNATURES["anthropic-messages"], SIGNATURES["openai-responses"]
    vendors.plays("anthropic-messages", thinks("How?", plan, TextPiece(part="t", text="1. Look. 2. Tell.")))
    both = calls("current_time", "sys_monitor", mark="o")
    vendors.plays("openai-responses", thinks("Both at once.", act, *both, reason="tool_use"), says("Late, and quiet."))
    vendors.plays("gemini-generate", says("Nothing is missing."))


async def begun(talk: Talk, vendors: Vendors) -> None:
    await talk.agent(
        planner_model=model("anthropic-messages"),
        model=model("openai-responses"),
        reviewer_model=model("gemini-generate"),
        tools=["current_time", "sys_monitor"],
    )
    plays_of_a_task(vendors)
    await talk.begin("How is the machine?")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE


async def test_anthropic_plans_openai_acts_with_two_tools_at_once_and_gemini_reviews(
    talk: Talk, vendors: Vendors, providers: Router
) -> None:
    await begun(talk, vendors)
    asked = [seen.dialect for seen in vendors.requests]
    assert asked == ["anthropic-messages", "openai-responses", "openai-responses", "gemini-generate"]
    assert [seen.problem for seen in vendors.requests] == [None] * 4
    entries = [entry for entry in await talk.entries() if not entry.is_internal]
    assert [type(entry) for entry in entries] == [
        ModelInput,
        ModelOutput,
        ModelOutput,
        ToolResults,
        ModelOutput,
        ModelOutput,
    ]
    spoken = [(entry.provider, entry.text) for entry in entries if isinstance(entry, ModelOutput)]
    assert spoken == [
        ("anthropic", "1. Look. 2. Tell."), ("openai", ""), ("openai", "Late, and quiet."),
        ("gemini", "Nothing is missing."),
    ]  # fmt: skip
    made = await in_database(lambda: list(ToolCall.objects.order_by("index").values_list("name", "status")))
    assert made == [("current_time", "success"), ("sys_monitor", "success")]


async def test_its_history_is_in_order_of_time_with_who_was_asked_in_which_language(
    talk: Talk, vendors: Vendors, providers: Router
) -> None:
    await begun(talk, vendors)
    await talk.send("/current_time")
    messages = await talk.messages()
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    times = [(message.created_at, message.kind) for message in messages]
    assert times == sorted(times, key=lambda one: one[0])
    assert all(after.parent_seq == before.seq for before, after in pairwise(messages))
    exchanges = await in_database(lambda: list(Exchange.objects.order_by("started_at")))
    assert [exchange.dialect for exchange in exchanges] == [seen.dialect for seen in vendors.requests]
    assert [exchange.end_reason for exchange in exchanges] == ["done"] * 4
    # Each was told what those before it said, and what the tools gave.
    told = [json.dumps(seen.body) for seen in vendors.requests]
    assert "1. Look. 2. Tell." not in told[0]
    assert all("1. Look. 2. Tell." in body for body in told[1:])
    assert "Late, and quiet." in told[3]
    assert "CPU" in told[2]


async def test_signed_thinking_goes_back_to_its_provider_only(talk: Talk, vendors: Vendors, providers: Router) -> None:
    await begun(talk, vendors)
    plays_of_a_task(vendors)
    await talk.send("And now?")
    await talk.until_ended()
    assert [seen.problem for seen in vendors.requests] == [None] * 8
    assert [signatures_in(seen) for seen in vendors.requests] == [
        set(), set(), {"openai-responses"}, set(),
        {"anthropic-messages"}, {"openai-responses"}, {"openai-responses"}, set(),
    ]  # fmt: skip


def play(dialect: str, turn: int) -> list[Play]:
    """It thinks, signs that, calls a tool, and says something when it has the result."""
    wanted = calls("current_time", mark=f"{dialect}-{turn}")
    said = says(f"{dialect} says {turn}.")
    if dialect not in SIGNATURES:
        return [thinks("Hm.", "", *wanted, reason="tool_use"), said]
    return [thinks("Hm.", SIGNATURES[dialect], *wanted, reason="tool_use"), said]


@pytest.mark.parametrize("first", DIALECTS)
async def test_the_same_session_goes_on_in_each_language_in_turn_with_signed_thinking_in_play(
    talk: Talk, vendors: Vendors, providers: Router, first: str
) -> None:
    await begun(talk, vendors)
    await in_database(lambda: Agent.objects.create(name="plain", tools=["current_time"]))
    order = [*DIALECTS]
    order = [*order[order.index(first) :], *order[: order.index(first)]]
    for turn in (1, 2):
        for dialect in order:
            vendors.plays(dialect, *play(dialect, turn))
            await talk.send(f"Turn {turn}.", agent="plain", model=model(dialect))
            run = await talk.until_ended()
            assert run.outcome == Run.Outcome.DONE, run.error
            assert (await talk.texts())[-1] == ("assistant", f"{dialect} says {turn}.")
    assert [seen.problem for seen in vendors.requests] == [None] * len(vendors.requests)
    for seen in vendors.requests:
        assert signatures_in(seen) <= {seen.dialect}
    for dialect in SIGNATURES:
        assert signatures_in(vendors.requests_for(dialect)[-1]) == {dialect}
    answers = [entry for entry in await talk.entries() if isinstance(entry, ModelOutput)]
    kept = [part for entry in answers for part in entry.parts if isinstance(part, Reasoning)]
    assert {part.provider: part.signature for part in kept if part.signature} == {
        NAMES[dialect]: signature for dialect, signature in SIGNATURES.items()
    }
