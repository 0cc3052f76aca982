"""Conversations as other clients write them: every text of a first request and of each new tail is in the record.

Each client is a function from what was said to the body that it sends. They differ in what they repeat, wrap, move,
leave out or add for one request alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from history.models import ApiKey, Exchange, Message, Session
from history.verification import verify
from tests.factories import example_count
from tests.relay.digest.relayed import Relay, call, model_answer, path_of, remove_everything

pytestmark = pytest.mark.django_db

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
Body = dict[str, Any]


@dataclass
class Turn:
    """A question, perhaps a call with its result, and the answer once it is there."""

    question: str
    call_id: str = ""
    looked: str = ""
    result: str = ""
    answer: str = ""


@dataclass
class Talk:
    turns: list[Turn] = field(default_factory=list)
    requests: int = 0


def system(text: str) -> Body:
    return {"role": "system", "content": text}


def user(content: Any) -> Body:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> Body:
    return {"role": "assistant", "content": content, **more}


def called(turn: Turn) -> list[Body]:
    function = {"name": "read_file", "arguments": json.dumps({"path": turn.question})}
    return [{"id": turn.call_id, "type": "function", "function": function}]


def chat_turn(turn: Turn, *, empty: Any = "", name: str = "") -> list[Body]:
    found = [user(turn.question)]
    if turn.looked or turn.result:
        found.append(assistant(turn.looked or empty, tool_calls=called(turn)))
    if turn.result:
        told = {"role": "tool", "tool_call_id": turn.call_id, "content": turn.result}
        found.append(told | ({"name": name} if name else {}))
    return [*found, assistant(turn.answer)] if turn.answer else found


def aider(talk: Talk) -> tuple[str, Body]:
    """Examples first; the files stand before the newest question, as they are now; a reminder behind it."""
    examples_of_it = [user("Change get_factorial()"), assistant("To make this change we need to modify it.")]
    files = [
        user(f"I have *added these files*: state {talk.requests}"),
        assistant("Ok, any changes I propose will be."),
    ]
    done = [one for turn in talk.turns[:-1] for one in chat_turn(turn)]
    newest = chat_turn(talk.turns[-1])
    newest[0] = user(f"{talk.turns[-1].question}\n\nReminder: reply in the format.")
    return CHAT, {"messages": [system("Act as an expert."), *examples_of_it, *done, *files, *newest]}


def cline(talk: Talk) -> tuple[str, Body]:
    """Results are texts of the user, each message has its surroundings, and the marks for the cache move on."""
    found: list[Body] = []
    for place, turn in enumerate(talk.turns):
        around = {"type": "text", "text": f"<environment_details>\nTime: {place}\n</environment_details>"}
        found.append(user([{"type": "text", "text": f"<task>\n{turn.question}\n</task>"}, around]))
        if turn.result:
            found.append(assistant([{"type": "text", "text": turn.looked or "<read_file/>"}]))
            found.append(user([{"type": "text", "text": f"[read_file] Result:\n{turn.result}"}, around]))
        if turn.answer:
            found.append(assistant([{"type": "text", "text": turn.answer}]))
    found = json.loads(json.dumps(found))
    for message in [one for one in found if one["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    instruction = [{"type": "text", "text": "You are Cline.", "cache_control": {"type": "ephemeral"}}]
    return MESSAGES, {"system": instruction, "messages": found, "max_tokens": 100}


def continue_dev(talk: Talk) -> tuple[str, Body]:
    """Only the last turns are sent again."""
    kept = [one for turn in talk.turns[-3:] for one in chat_turn(turn)]
    return CHAT, {"messages": [system("Your are in agent mode."), *kept], "tools": TOOLS}


def goose(talk: Talk) -> tuple[str, Body]:
    """The time is told at the end of each request, and is not sent again."""
    found = [one for turn in talk.turns for one in chat_turn(turn)]
    now = user(f"<info-msg>\nIt is currently {talk.requests}\n</info-msg>")
    return CHAT, {"messages": [system("You are goose."), *found, now], "tools": TOOLS}


def pydantic_ai(talk: Talk) -> tuple[str, Body]:
    found = [one for turn in talk.turns for one in chat_turn(turn, empty=None)]
    return CHAT, {"messages": [system("Be helpful."), *found], "tools": TOOLS, "tool_choice": "auto"}


def langchain(talk: Talk) -> tuple[str, Body]:
    found = [one for turn in talk.turns for one in chat_turn(turn, name="read_file")]
    return CHAT, {"messages": [system("Be helpful."), *found], "tools": TOOLS, "n": 1}


def litellm(talk: Talk) -> tuple[str, Body]:
    """Texts as lists of parts, and what a thinking model said besides."""
    found: list[Body] = []
    for turn in talk.turns:
        for one in chat_turn(turn):
            content = one["content"]
            if one["role"] == "user":
                content = [{"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}]
            more = {"reasoning_content": "hm", "thinking_blocks": []} if one["role"] == "assistant" else {}
            found.append({**one, "content": content, **more})
    return CHAT, {"messages": [system("Be helpful."), *found], "tools": TOOLS}


def vercel_ai_sdk(talk: Talk) -> tuple[str, Body]:
    found: list[Body] = []
    for turn in talk.turns:
        found.append(user([{"type": "input_text", "text": turn.question}]))
        if turn.looked:
            found.append(assistant([{"type": "output_text", "text": turn.looked}]))
        if turn.result:
            arguments = json.dumps({"path": turn.question})
            found.append(
                {"type": "function_call", "call_id": turn.call_id, "name": "read_file", "arguments": arguments}
            )
            found.append({"type": "function_call_output", "call_id": turn.call_id, "output": turn.result})
        if turn.answer:
            found.append(assistant([{"type": "output_text", "text": turn.answer}]))
    tools = [{"type": "function", "name": "read_file", "parameters": {"type": "object"}}]
    return RESPONSES, {"input": [system("Be helpful."), *found], "tools": tools, "store": False}


def crush(talk: Talk) -> tuple[str, Body]:
    """The summary of an earlier session is a user's message at the beginning; the instruction has several parts."""
    found: list[Body] = []
    for turn in talk.turns:
        found.append(user([{"type": "text", "text": turn.question}]))
        if turn.result:
            use = {"type": "tool_use", "id": turn.call_id, "name": "read_file", "input": {"path": turn.question}}
            found.append(assistant([*([{"type": "text", "text": turn.looked}] if turn.looked else []), use]))
            done = {
                "type": "tool_result",
                "tool_use_id": turn.call_id,
                "content": [{"type": "text", "text": turn.result}],
            }
            found.append(user([done]))
        if turn.answer:
            found.append(assistant([{"type": "text", "text": turn.answer}]))
    tools = [{"name": "read_file", "input_schema": {"type": "object"}}]
    instruction = [{"type": "text", "text": "You are Crush."}, {"type": "text", "text": "Project notes."}]
    return MESSAGES, {"system": instruction, "messages": found, "tools": tools, "max_tokens": 100}


CLIENTS: list[Callable[[Talk], tuple[str, Body]]] = [
    *(aider, cline, continue_dev, goose, pydantic_ai, langchain, litellm, vercel_ai_sdk, crush)
]
# They say something for one request alone, before an answer that they send again: so that is stored again, beside the
# path or in a session of its own.
WITH_PASSING_WORDS = (aider, goose)
WITHOUT_CALLS = (aider, cline)
turns = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from(["digest", "later", "reborn"])), min_size=1, max_size=5
)


class Act:
    def __init__(self, relay: Relay, client: Callable[[Talk], tuple[str, Body]]) -> None:
        self.relay, self.client = relay, client
        self.talk = Talk()
        self.texts: list[str] = []
        self.answers: list[str] = []

    def take_turn(self, number: int, *, with_tool: bool, looks_silently: bool) -> None:
        turn = Turn(f"Question {number} of it")
        self.talk.turns.append(turn)
        self.texts.append(turn.question)
        if with_tool and self.client not in WITHOUT_CALLS:
            turn.call_id, looked = f"call_{number}", "" if looks_silently else f"I look {number}."
            self.send(model_answer(looked, call("read_file", turn.call_id, path=turn.question)))
            turn.looked, turn.result = looked, f"Result {number} of it"
            self.texts.append(turn.result)
        answer = f"Answer {number} of it."
        self.send(model_answer(answer))
        turn.answer = answer
        self.answers.append(answer)

    def send(self, output: Any) -> None:
        self.talk.requests += 1
        dialect, body = self.client(self.talk)
        if self.talk.requests == 1:
            self.texts += texts_in(body.get("messages") or body.get("input"))
        self.relay.answer(self.relay.send(dialect, {"model": "m", "stream": True, **body}), output)


def texts_in(messages: Any) -> list[str]:
    contents = [message.get("content") or "" for message in messages]
    return [text for one in contents for text in ([one] if isinstance(one, str) else [part["text"] for part in one])]


@pytest.mark.parametrize("client", CLIENTS)
@given(plan=turns)
@settings(max_examples=example_count(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_text_of_a_client_is_in_the_record(
    client: Callable[[Talk], tuple[str, Body]], plan: list[tuple[bool, bool, str]], key: ApiKey
) -> None:
    remove_everything()
    with TemporaryDirectory() as folder:
        relay = Relay(Path(folder), key)
        act = Act(relay, client)
        for number, (with_tool, looks_silently, then) in enumerate(plan):
            act.take_turn(number, with_tool=with_tool, looks_silently=looks_silently)
            if then != "later":
                relay.digest()
            if then == "reborn":
                relay.reborn()
        relay.digest()
        relay.journal.close()
    everything = "\n".join(Message.objects.values_list("content", flat=True))
    assert [text for text in act.texts if text not in everything] == []
    assert not Exchange.objects.filter(ended_at=None).exists()
    session = Session.objects.latest("last_activity_at")
    lines = path_of(session)
    assert lines[-1] == f"a:{act.answers[-1]}"
    stored = list(Message.objects.filter(kind="model_output").values_list("content", flat=True))
    assert set(act.answers) <= set(stored)
    if client not in WITH_PASSING_WORDS:
        assert Session.objects.count() == 1
        assert [stored.count(answer) for answer in act.answers] == [1] * len(act.answers)
        assert [line for line in lines if line[2:] in act.answers] == [f"a:{answer}" for answer in act.answers]
    assert list(verify()) == []
