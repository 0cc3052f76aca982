"""Encoded requests of any history are valid: every call has its results directly after it."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.context.rendering import render_context
from history.context.values import Context, ContextOptions, Role
from history.dialects import DIALECTS, CallOptions, Switches
from history.entries import Node
from tests.factories import example_count
from tests.history.context.strategies import options, paths, snapshot_of

pytestmark = pytest.mark.no_database

MANY = settings(max_examples=example_count(100), deadline=None)
SWITCHES = st.builds(
    Switches,
    system_role=st.sampled_from(["system", "developer", "remove"]),
    alternate_roles=st.booleans(),
    separate_user_text=st.booleans(),
    media_in_results=st.booleans(),
)


def body(name: str, nodes: tuple[Node, ...], limits: ContextOptions, switches: Switches) -> dict[str, Any]:
    context = render_context(snapshot_of(nodes), limits)
    encoded = DIALECTS[name].encode(context, CallOptions(model="m", switches=switches))
    again = DIALECTS[name].encode(context, CallOptions(model="m", switches=switches))
    assert again == encoded
    assert calls_in(context) == json.dumps(encoded.body).count(MARKS[name])
    return dict(json.loads(json.dumps(encoded.body)))


# What shows a call in the JSON of each language.
MARKS = {
    "openai-chat": '"type": "function", "function"',
    "openai-responses": '"function_call",',
    "anthropic-messages": '"tool_use",',
    "gemini-generate": '"functionCall":',
}


def calls_in(context: Context) -> int:
    return sum(len(entry.tool_requests) for entry in context.entries if entry.role is Role.MODEL_OUTPUT)


@given(paths(), options(), SWITCHES)
@MANY
def test_openai_chat_every_call_is_answered_directly_after_it(
    nodes: tuple[Node, ...], limits: ContextOptions, switches: Switches
) -> None:
    waiting: list[str] = []
    for message in body("openai-chat", nodes, limits, switches)["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            assert message["content"] or waiting
    assert waiting == []


@given(paths(), options(), SWITCHES)
@MANY
def test_openai_responses_outputs_follow_their_calls_in_a_group(
    nodes: tuple[Node, ...], limits: ContextOptions, switches: Switches
) -> None:
    waiting: list[str] = []
    for item in body("openai-responses", nodes, limits, switches)["input"]:
        if item["type"] == "function_call":
            waiting.append(item["call_id"])
        elif item["type"] == "function_call_output":
            assert item["call_id"] == waiting.pop(0)
        else:
            assert waiting == []
    assert waiting == []


@given(paths(), options(), SWITCHES)
@MANY
def test_anthropic_roles_alternate_and_results_stand_first(
    nodes: tuple[Node, ...], limits: ContextOptions, switches: Switches
) -> None:
    messages = body("anthropic-messages", nodes, limits, switches)["messages"]
    assert all(before["role"] != after["role"] for before, after in pairwise(messages))
    assert not messages or messages[0]["role"] == "user"
    waiting: list[str] = []
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == waiting
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert kinds[len(kinds) - len(waiting) :] == ["tool_use"] * len(waiting)
    assert waiting == []


@given(paths(), options(), SWITCHES)
@MANY
def test_gemini_has_as_many_responses_as_calls(
    nodes: tuple[Node, ...], limits: ContextOptions, switches: Switches
) -> None:
    contents = body("gemini-generate", nodes, limits, switches)["contents"]
    assert not contents or contents[0]["role"] == "user"
    waiting: list[str] = []
    for content in contents:
        assert content["parts"]
        assert all(part.get("text") != "" or "thoughtSignature" in part for part in content["parts"])
        responses = [part["functionResponse"]["id"] for part in content["parts"] if "functionResponse" in part]
        assert responses == waiting
        calls = [part for part in content["parts"] if "functionCall" in part]
        waiting = [part["functionCall"]["id"] for part in calls]
        assert not calls or "thoughtSignature" in calls[0]
    assert waiting == []
