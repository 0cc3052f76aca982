"""Ids that clients invent for calls that came without one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from history.models import Message, ToolCall
from tests.relay.digest.programs import GenAiSdk
from tests.relay.digest.relayed import Relay, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

Calls = list[tuple[str, str]]
ROUNDS: list[Calls] = [
    [("read_file", "a"), ("read_file", "b")],
    [("list", "c"), ("read_file", "a"), ("list", "d")],
    [("read_file", "a"), ("read_file", "a")],
]


class InventsIds(GenAiSdk):
    """A client of Gemini that gives ids to calls which have none; `invent` makes them."""

    def __init__(self, relay: Relay, invent: Callable[[], str], *, is_reversed: bool = False) -> None:
        super().__init__(relay)
        self.invent, self.is_reversed = invent, is_reversed

    def use_tools(self, text: str, calls: Calls, *, ids: list[str] | None = None) -> None:
        """The model asks for these calls, with ids of its own or none, and gets their results with the next request."""
        exchange = self.send(text)
        parts = [{"functionCall": {"name": name, "args": {"path": path}}} for name, path in calls]
        for part, given in zip(parts, ids or [], strict=False):
            part["functionCall"]["id"] = given
        reply = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
        self.relay.journal.reply(exchange, b"data: %s\n\n" % json.dumps(reply).encode())
        self.relay.end(exchange)
        self.relay.digest()
        for part in parts:
            part["functionCall"].setdefault("id", self.invent())
        results: list[dict[str, Any]] = [
            {
                "functionResponse": {
                    "id": part["functionCall"]["id"],
                    "name": name,
                    "response": {"output": f"{name} {path}"},
                }
            }
            for part, (name, path) in zip(parts, calls, strict=True)
        ]
        self.body["contents"].append({"role": "model", "parts": parts})
        self.body["contents"].append({"role": "user", "parts": results[::-1] if self.is_reversed else results})


def ids_of(pattern: str) -> Callable[[], str]:
    numbers = count()
    return lambda: pattern.format(next(numbers))


@pytest.mark.parametrize("pattern", ["synth_{}", "read_file-1763-{}", "aB3dE6gH9jK2mN{}", "pyd_ai_{}", "call_{}"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_invented_ids_complete_the_calls_of_each_round(relay: Relay, pattern: str, is_reversed: bool) -> None:
    talk = InventsIds(relay, ids_of(pattern), is_reversed=is_reversed)
    for number, calls in enumerate(ROUNDS):
        talk.use_tools(f"Question {number}" if not number else "", calls)
    talk.relay_call("", model_answer("Done."))
    talk.relay_call("Thanks", model_answer("Gladly."))
    (session,) = sessions()
    rows = ToolCall.objects.order_by("message__seq", "index")
    assert [(row.status, row.result) for row in rows] == [
        ("success", f"{name} {path}") for calls in ROUNDS for name, path in calls
    ]
    assert len(path_of(session)) == 1 + 2 * len(ROUNDS) + 3
    assert not Message.objects.filter(on_path=False).exists()
    assert Message.objects.filter(kind="tool_results").count() == len(ROUNDS)


def test_ids_of_the_model_and_invented_ones_may_alternate(relay: Relay) -> None:
    talk = InventsIds(relay, ids_of("mine-{}"))
    for number, calls in enumerate(ROUNDS * 2):
        ids = [f"given-{number}-{place}" for place in range(len(calls))] if number % 2 else None
        talk.use_tools("Begin" if not number else "", calls, ids=ids)
    talk.relay_call("", model_answer("Done."))
    assert set(ToolCall.objects.values_list("status", flat=True)) == {"success"}
    assert not Message.objects.filter(on_path=False).exists()


def test_a_client_may_invent_other_ids_with_each_request(relay: Relay) -> None:
    invent = ids_of("again-{}")
    talk = InventsIds(relay, invent)
    talk.use_tools("Begin", ROUNDS[0])
    talk.relay_call("", model_answer("Read."))
    for content in talk.body["contents"]:
        for part in content["parts"]:
            for name in ("functionCall", "functionResponse"):
                if name in part:
                    part[name]["id"] = f"other-{part[name]['id']}"
    talk.relay_call("Thanks", model_answer("Gladly."))
    assert [row.status for row in ToolCall.objects.all()] == ["success", "success"]
    assert not Message.objects.filter(on_path=False).exists()


def test_calls_of_a_chat_server_without_ids_are_completed(relay: Relay) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look"}]
    function = {"name": "find", "arguments": '{"q": "fjords"}'}
    exchange = relay.send("openai-chat", {"model": "m", "messages": messages})
    message = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    relay.journal.reply(exchange, json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode())
    relay.end(exchange)
    relay.digest()
    asked = {**message, "tool_calls": [{"id": "chatcmpl-tool-77", "type": "function", "function": function}]}
    messages += [asked, {"role": "tool", "tool_call_id": "chatcmpl-tool-77", "content": "Twelve"}]
    relay.relay_call("openai-chat", {"model": "m", "messages": messages}, model_answer("Twelve."))
    messages += [{"role": "assistant", "content": "Twelve."}, {"role": "user", "content": "Thanks"}]
    relay.relay_call("openai-chat", {"model": "m", "messages": messages}, model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session) == ["u:Look", "a:", "t:Twelve", "a:Twelve.", "u:Thanks", "a:Gladly."]
    assert ToolCall.objects.get().status == "success"


@pytest.mark.parametrize("is_one_message", [True, False])
def test_results_that_a_client_sends_twice_are_stored_once(relay: Relay, is_one_message: bool) -> None:
    """Gemini CLI 0.61.0 does so after `--resume`."""
    talk = InventsIds(relay, ids_of("run_shell_command_1795006537616_{}"))
    talk.use_tools("Question", [("run", "a"), ("run", "b")])
    talk.relay_call("", model_answer("Done."))
    results = talk.body["contents"][2]["parts"]
    if is_one_message:
        results += copy.deepcopy(results)
    else:
        talk.body["contents"].insert(3, copy.deepcopy(talk.body["contents"][2]))
    talk.relay_call("Thanks", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session)[-4:] == ["t:run a\n\nrun b", "a:Done.", "u:Thanks", "a:Gladly."]
    assert not Message.objects.filter(on_path=False).exists()
    assert [row.status for row in ToolCall.objects.all()] == ["success", "success"]


def test_equal_results_of_two_calls_with_one_id_are_both_kept(relay: Relay) -> None:
    """Some servers give every call the same id."""
    talk = InventsIds(relay, ids_of("{}"))
    talk.use_tools("Question", [("run", "a"), ("run", "a")], ids=["call_0", "call_0"])
    talk.relay_call("", model_answer("Done."))
    stored = Message.objects.get(kind="tool_results")
    assert stored.content == "run a\n\nrun a"
