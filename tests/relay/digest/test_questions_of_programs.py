"""Calls that a program makes for itself beside its conversation: they never take the place of what people said."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from history.entries import ModelOutput
from history.models import Message
from tests.relay.digest.programs import ClaudeCode, prose
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

PAGE = "\nWeb page content:\n---\n# Fjords\n\nThere are many.\n---\n\nHow many fjords are there?"
COMMAND = "Command: git status\n\nCommand prefix?"
OVERLOADED = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'


def small(text: str, **fields: Any) -> dict[str, Any]:
    """As Claude Code asks its small model: under the name of the conversation, without tools."""
    system = [{"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."}]
    content = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "user", "content": content}]
    return {"model": "small", "max_tokens": 512, "system": system, "messages": messages, "stream": True, **fields}


def begun(relay: Relay) -> ClaudeCode:
    talk = ClaudeCode(relay)
    talk.relay_call("Look up fjords", model_answer("", call("WebFetch", "c1", url="https://example.org")))
    return talk


def ask_side_call(talk: ClaudeCode, text: str, output: ModelOutput) -> UUID:
    return talk.relay.relay_call(talk.dialect, small(text), output, talk.headers)


@pytest.mark.parametrize("text", [PAGE, COMMAND])
def test_a_question_of_the_programs_own_leaves_the_conversation_where_it_is(relay: Relay, text: str) -> None:
    talk = begun(relay)
    asked = [ask_side_call(talk, text, model_answer(f"It says {number}")) for number in range(2)]
    (session,) = sessions()
    assert (path_of(session), session.message_count) == (["u:Look up fjords", "a:"], 2)
    talk.find(c1="Many.")
    talk.relay_call("", model_answer("There are many."))
    assert path_of(sessions()[0]) == ["u:Look up fjords", "a:", "t:Many.", "a:There are many."]
    assert not Message.objects.filter(kind="head_moved").exists()
    assert [exchange_of(one).metadata["helper"] for one in asked] == ["other", "other"]
    # A note, not a branch: a page would offer a branch as another version of the first message.
    assert not Message.objects.filter(on_path=False).exclude(kind="debug_log").exists()
    assert Message.objects.filter(kind="debug_log", content__contains="It says 1").exists()


def test_a_question_of_the_client_after_the_conversation_is_not_a_message(relay: Relay) -> None:
    talk = begun(relay)
    talk.find(c1="Many.")
    talk.relay_call("", model_answer("There are many."))
    exchange = talk.ask_aside(prose(6_912), model_answer("count them"))
    talk.relay_call("Thanks", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session)[-3:] == ["a:There are many.", "u:Thanks", "a:Gladly."]
    assert exchange_of(exchange).metadata["helper"] == "aside"
    assert Message.objects.get(kind="debug_log").content.endswith("count them")
    assert not Message.objects.filter(kind="head_moved").exists()


def test_a_summary_asked_for_beside_tool_results_is_a_side_call(relay: Relay) -> None:
    talk = begun(relay)
    talk.find(c1="Many.")
    talk.relay_call("", model_answer("There are many."))
    exchange = talk.ask_aside_with_results(prose(6_912), model_answer("<summary>Fjords.</summary>"), c1="Many.")
    talk.relay_call("Thanks", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session)[-3:] == ["a:There are many.", "u:Thanks", "a:Gladly."]
    assert exchange_of(exchange).metadata["helper"] == "aside"
    assert not Message.objects.filter(kind="head_moved").exists()


def test_results_that_are_marked_for_the_cache_belong_to_the_conversation(relay: Relay) -> None:
    talk = begun(relay)
    body = talk.request()
    body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Many.", "cache_control": {"type": "ephemeral"}}
    body["messages"].append({"role": "user", "content": [result, {"type": "text", "text": "Go on."}]})
    relay.relay_call(talk.dialect, body, model_answer("There are many."), talk.headers)
    assert path_of(sessions()[0])[-3:] == ["t:Many.", "u:Go on.", "a:There are many."]


@pytest.mark.parametrize("is_title", [True, False])
def test_one_that_is_tried_again_does_not_move_the_conversation_either(relay: Relay, is_title: bool) -> None:
    talk = begun(relay)
    body = talk.title_request("Look up fjords") if is_title else small(COMMAND)
    first = relay.send(talk.dialect, body, {**talk.headers, "x-stainless-retry-count": "0"})
    relay.fail(first, 529, OVERLOADED)
    relay.digest()
    again = {**talk.headers, "x-stainless-retry-count": "1"}
    last = relay.relay_call(talk.dialect, body, model_answer("Fjords"), again)
    assert exchange_of(last).attempts == 2
    (session,) = sessions()
    assert path_of(session) == ["u:Look up fjords", "a:"]
    assert session.title == "Look up fjords"


def test_a_client_without_tools_makes_no_side_calls(relay: Relay) -> None:
    headers = {"user-agent": "claude-cli/2.1.80", "x-claude-code-session-id": "plain"}
    for text in ("one", "two"):
        relay.relay_call("anthropic-messages", small(text), model_answer(f"Answer {text}"), headers)
        relay.digest_later()
    assert path_of(sessions()[0]) == ["u:two", "a:Answer two"]
