"""The played vendors are fit to judge: the vendors' own SDKs talk to them, and each rule refuses what it should."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from history.answers.events import TextPiece
from tests.vendors import KEYS, Vendors, asks, refuses, says, thinks
from tests.vendors.rules import SENTINEL, problem_with

pytestmark = pytest.mark.no_database

SIGNATURE = base64.b64encode(b"signed").decode()
SAID = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def by_openai(vendors: Vendors) -> openai.OpenAI:
    return openai.OpenAI(api_key=KEYS["openai"], base_url=vendors.url + "/v1", max_retries=0)


@pytest.fixture
def by_anthropic(vendors: Vendors) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key=KEYS["anthropic"], base_url=vendors.url, max_retries=0)


@pytest.fixture
def by_google(vendors: Vendors) -> genai.Client:
    options = genai_types.HttpOptions(base_url=vendors.url)
    return genai.Client(api_key=KEYS["gemini"], http_options=options)


# The official SDKs, streamed and whole


def test_openais_sdk_reads_chat_streamed_and_whole(vendors: Vendors, by_openai: openai.OpenAI) -> None:
    whole = by_openai.chat.completions.create(model="m", messages=SAID)
    assert whole.choices[0].message.content == "Hello."
    vendors.plays("openai-chat", replace(asks(("call_a", "cpu", '{"a": 1}'), text="Look."), noise=True))
    with by_openai.chat.completions.stream(model="m", messages=SAID) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"a": 1}'


def test_openais_sdk_reads_responses_streamed_and_whole(vendors: Vendors, by_openai: openai.OpenAI) -> None:
    assert by_openai.responses.create(model="m", input="Hi").output_text == "Hello."
    vendors.plays("openai-responses", replace(says("Good ", "day."), noise=True))
    with by_openai.responses.stream(model="m", input="Hi") as stream:
        assert stream.get_final_response().output_text == "Good day."


def test_anthropics_sdk_reads_messages_streamed_and_whole(vendors: Vendors, by_anthropic: anthropic.Anthropic) -> None:
    whole = by_anthropic.messages.create(model="m", max_tokens=9, messages=SAID)
    assert whole.content[0].text == "Hello."
    play = thinks("Hm.", SIGNATURE, TextPiece(part="t", text="Yes."))
    vendors.plays("anthropic-messages", replace(play, noise=True))
    with by_anthropic.messages.stream(model="m", max_tokens=9, messages=SAID) as stream:
        thinking, text = stream.get_final_message().content
    assert (thinking.signature, text.text) == (SIGNATURE, "Yes.")


def test_googles_sdk_reads_gemini_streamed_and_whole(vendors: Vendors, by_google: genai.Client) -> None:
    assert by_google.models.generate_content(model="m", contents="Hi").text == "Hello."
    vendors.plays("gemini-generate", says("Good ", "day."))
    chunks = by_google.models.generate_content_stream(model="m", contents="Hi")
    assert "".join(chunk.text or "" for chunk in chunks) == "Good day."


def test_errors_are_those_that_the_sdks_expect(
    vendors: Vendors, by_openai: openai.OpenAI, by_anthropic: anthropic.Anthropic
) -> None:
    vendors.plays("openai-chat", refuses("rate_limit", headers={"retry-after": "7"}))
    with pytest.raises(openai.RateLimitError) as busy:
        by_openai.chat.completions.create(model="m", messages=SAID)
    assert busy.value.response.headers["retry-after"] == "7"
    vendors.plays("anthropic-messages", refuses("overloaded"))
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        by_anthropic.messages.create(model="m", max_tokens=9, messages=SAID)
    assert overloaded.value.status_code == 529
    wrong = by_openai.with_options(api_key="sk-wrong")
    with pytest.raises(openai.AuthenticationError):
        wrong.responses.create(model="m", input="Hi")


def test_models_are_listed_in_the_shape_of_the_caller(
    vendors: Vendors, by_openai: openai.OpenAI, by_anthropic: anthropic.Anthropic
) -> None:
    vendors.models["openai"] = [{"id": "gpt-x", "object": "model", "created": 1, "owned_by": "x"}]
    vendors.models["anthropic"] = [{"id": "claude-x", "type": "model", "display_name": "X", "created_at": "2026-01-01"}]
    assert [model.id for model in by_openai.models.list()] == ["gpt-x"]
    assert [model.id for model in by_anthropic.models.list()] == ["claude-x"]


# The rules


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def chat_calls(*call_ids: str) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "42"}


def message_of(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks) or "Hi"}


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "42"}


def messages(*listed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(listed), **more}


TEXT = {"type": "text", "text": "Hi"}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "42"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNATURE}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
QUESTION = {"type": "message", "role": "user", "content": "Hi"}


def responses(*items: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "input": list(items)}


def call_part(*, signature: str | None = SENTINEL) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": "f", "args": {}}, **signed}


RESPONSE = {"functionResponse": {"name": "f", "response": {"output": "42"}}}


def contents(*listed: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {"contents": [{"role": role, "parts": parts} for role, parts in listed]}


ASKED = ("user", [{"text": "Hi"}])

GOOD = {
    "openai-chat": [
        chat(message_of("user"), chat_calls("a", "b"), chat_result("a"), chat_result("b"), message_of("user")),
        chat({"role": "system", "content": "x"}, message_of("user"), message_of("user")),
    ],
    "openai-responses": [
        responses(QUESTION, THOUGHT, ANSWER, CALL, {**CALL, "call_id": "b"}, OUTPUT, {**OUTPUT, "call_id": "b"}),
        {"model": "m", "input": "Hi"},
    ],
    "anthropic-messages": [
        messages(
            message_of("user"),
            message_of("assistant", TEXT, use("a"), use("b")),
            message_of("user", result("a"), result("b"), TEXT),
        ),
        messages(
            message_of("user"),
            message_of("user"),
            message_of("assistant", {"type": "thinking", "thinking": "", "signature": SIGNATURE}),
        ),
    ],
    "gemini-generate": [
        contents(
            ASKED, ("model", [call_part(), call_part(signature=None)]), ("user", [RESPONSE, RESPONSE, {"text": "x"}])
        ),
        contents(ASKED, ASKED, ("model", [{"text": "x"}]), ASKED),
    ],
}

BAD = {
    "openai-chat": {
        "no answer to a call": chat(message_of("user"), chat_calls("a", "b"), chat_result("a")),
        "user before the result": chat(message_of("user"), chat_calls("a"), message_of("user"), chat_result("a")),
        "an answer to nothing": chat(message_of("user"), chat_result("a")),
        "the same answer twice": chat(message_of("user"), chat_calls("a"), chat_result("a"), chat_result("a")),
        "content null without calls": chat({"role": "assistant", "content": None}),
        "an id of 41 characters": chat(message_of("user"), chat_calls("x" * 41), chat_result("x" * 41)),
        "no messages": chat(),
        "an unknown role": chat(message_of("king")),
        "stream options without a stream": chat(message_of("user"), stream_options={"include_usage": True}),
        "a tool with a space in its name": chat(message_of("user"), tools=[{"function": {"name": "a b"}}]),
    },
    "openai-responses": {
        "no output": responses(QUESTION, CALL),
        "an output of nothing": responses(QUESTION, OUTPUT),
        "text between call and output": responses(QUESTION, CALL, QUESTION, OUTPUT),
        "reasoning alone": responses(QUESTION, THOUGHT),
        "reasoning before the user": responses(THOUGHT, QUESTION),
        "a foreign signature": responses(QUESTION, {**THOUGHT, "encrypted_content": "forged"}, ANSWER),
        "nothing": responses(),
    },
    "anthropic-messages": {
        "no result": messages(message_of("user"), message_of("assistant", use("a"))),
        "one of two results": messages(
            message_of("user"), message_of("assistant", use("a"), use("b")), message_of("user", result("a"))
        ),
        "results in two messages": messages(
            message_of("user"),
            message_of("assistant", use("a"), use("b")),
            message_of("user", result("a")),
            message_of("user", result("b")),
        ),
        "text before the result": messages(
            message_of("user"), message_of("assistant", use("a")), message_of("user", TEXT, result("a"))
        ),
        "text after the call": messages(
            message_of("user"), message_of("assistant", use("a"), TEXT), message_of("user", result("a"))
        ),
        "a result of nothing": messages(message_of("user", result("a"))),
        "an id with a dot": messages(
            message_of("user"), message_of("assistant", use("a.b")), message_of("user", result("a.b"))
        ),
        "an empty text": messages(message_of("user", {"type": "text", "text": " "})),
        "no limit": {"model": "m", "messages": [message_of("user")]},
        "a forged signature": messages(
            message_of("user"),
            message_of("assistant", {"type": "thinking", "thinking": "", "signature": "forged"}),
            message_of("user"),
        ),
        "system among the messages": messages(message_of("system")),
        "thinking with a temperature": messages(
            message_of("user"), max_tokens=2000, temperature=0.5, thinking={"type": "enabled", "budget_tokens": 1024}
        ),
        "more thinking than max_tokens": messages(
            message_of("user"), thinking={"type": "enabled", "budget_tokens": 1024}
        ),
    },
    "gemini-generate": {
        "no response": contents(ASKED, ("model", [call_part()])),
        "one of two": contents(ASKED, ("model", [call_part(), call_part()]), ("user", [RESPONSE])),
        "a response to nothing": contents(("user", [RESPONSE])),
        "no signature on the first call": contents(ASKED, ("model", [call_part(signature=None)]), ("user", [RESPONSE])),
        "a forged signature": contents(ASKED, ("model", [call_part(signature="forged")]), ("user", [RESPONSE])),
        "the model first": contents(("model", [{"text": "x"}])),
        "an empty part": contents(("user", [{"text": ""}])),
        "no parts": contents(("user", [])),
        "an unknown role": contents(ASKED, ("system", [{"text": "x"}])),
        "nothing": contents(),
    },
}
HEADERS = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("dialect", GOOD)
def test_what_the_vendor_takes_is_taken(dialect: str) -> None:
    for body in GOOD[dialect]:
        assert problem_with(dialect, body, HEADERS, {SIGNATURE}) is None, json.dumps(body)


@pytest.mark.parametrize(("dialect", "case"), [(dialect, case) for dialect, cases in BAD.items() for case in cases])
def test_what_the_vendor_refuses_is_refused(dialect: str, case: str) -> None:
    problem = problem_with(dialect, BAD[dialect][case], HEADERS, {SIGNATURE})
    assert problem is not None
    assert "malformed" not in problem


def test_anthropic_wants_to_know_the_version() -> None:
    assert problem_with("anthropic-messages", messages(message_of("user")), {}, set()) is not None


def test_nonsense_is_refused_and_not_a_crash() -> None:
    for dialect in GOOD:
        assert problem_with(dialect, {"messages": [1], "input": [1], "contents": [1]}, HEADERS, set())
