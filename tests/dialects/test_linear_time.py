"""Decoders, linter and importers take twice as long for twice the input, whatever the input repeats."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from history.dialects import DIALECTS
from history.formats.base import Notes
from history.formats.claude_code_thread import Thread
from history.linting.given import Given
from history.linting.judging import lint_request
from tests.doubling import assert_linear

AT = datetime(2026, 1, 1, tzinfo=UTC)
CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini-generate"


def chat(messages: list[Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "x"}, *messages], **fields}


def chat_calls(ids: list[str]) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    asked = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    results = [{"role": "tool", "tool_call_id": call_id, "content": "y"} for call_id in reversed(ids)]
    return chat([{"role": "assistant", "content": None, "tool_calls": asked}, *results])


def responses_calls(ids: list[str]) -> dict[str, Any]:
    asked = [{"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"} for call_id in ids]
    found = [{"type": "function_call_output", "call_id": call_id, "output": "y"} for call_id in reversed(ids)]
    return {"model": "m", "input": [{"role": "user", "content": "x"}, *asked, *found]}


def anthropic_calls(ids: list[str]) -> dict[str, Any]:
    asked = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in ids]
    found = [{"type": "tool_result", "tool_use_id": call_id, "content": "y"} for call_id in reversed(ids)]
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": asked},
        {"role": "user", "content": found},
    ]
    return {"model": "m", "max_tokens": 5, "messages": said}


def gemini(contents: list[Any], **fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "x"}]}, *contents], **fields}


ASKED = {"functionCall": {"name": "f", "args": {}}}
ANSWERED = {"functionResponse": {"name": "f", "response": {"a": 1}}}

MANY: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "chat, unknown fields": (CHAT, lambda n: chat([], **{f"u{i}": i for i in range(n)})),
    "chat, calls answered backwards": (CHAT, lambda n: chat_calls([f"c{i}" for i in range(n)])),
    "chat, calls with one id": (CHAT, lambda n: chat_calls(["c"] * n)),
    "chat, results of no call": (CHAT, lambda n: chat([{"role": "tool", "tool_call_id": "c", "content": "y"}] * n)),
    "chat, one role": (CHAT, lambda n: chat([{"role": "user", "content": "x"}] * n)),
    "responses, calls": (RESPONSES, lambda n: responses_calls([f"c{i}" for i in range(n)])),
    "responses, calls with one id": (RESPONSES, lambda n: responses_calls(["c"] * n)),
    "responses, unknown fields": (RESPONSES, lambda n: {**responses_calls(["c"]), **{f"u{i}": i for i in range(n)}}),
    "anthropic, calls": (ANTHROPIC, lambda n: anthropic_calls([f"c{i}" for i in range(n)])),
    "anthropic, refused fields": (
        ANTHROPIC,
        lambda n: {**anthropic_calls(["c"]), **{f"u{i}": i for i in range(n)}, "top_k": "x", "temperature": 9},
    ),
    "gemini, equal calls": (
        GEMINI,
        lambda n: gemini([{"role": "model", "parts": [ASKED] * n}, {"role": "user", "parts": [ANSWERED] * n}]),
    ),
    "gemini, chunks of one answer": (GEMINI, lambda n: gemini([{"role": "model", "parts": [ASKED]}] * n)),
    "gemini, texts in chunks": (GEMINI, lambda n: gemini([{"role": "model", "parts": [{"text": "x"}]}] * n)),
    "gemini, unknown fields": (GEMINI, lambda n: gemini([], **{f"u{i}": i for i in range(n)})),
}


@pytest.mark.parametrize("name", MANY)
def test_reading_a_request_takes_linear_time(name: str) -> None:
    language, make = MANY[name]
    assert_linear(lambda body: DIALECTS[language].decode_request(body, at=AT), make, size=1_500, runs=3)


@pytest.mark.parametrize("name", MANY)
def test_linting_a_request_takes_linear_time(name: str) -> None:
    language, make = MANY[name]
    assert_linear(lambda body: lint_request(Given(language=language, body=body)), make, size=150, runs=3)


def lines(kind: str, n: int) -> list[dict[str, Any]]:
    """One answer of Claude Code in many lines, and its results, one record each."""
    used = {"type": "tool_use", "name": "f", "input": {}}
    asked = [
        {"type": "assistant", "uuid": f"a{i}", "parentUuid": f"a{i - 1}" if i else None,
         "message": {"id": "m", "role": "assistant", "content": [{**used, "id": f"t{i}"}]}}
        for i in range(n)
    ]  # fmt: skip
    if kind == "answer":
        return asked
    result = {"type": "tool_result", "content": "y"}
    return asked[:1] + [
        {"type": "user", "uuid": f"r{i}", "parentUuid": "a0", "sourceToolAssistantUUID": "a0",
         "message": {"role": "user", "content": [{**result, "tool_use_id": f"t{i}"}]}}
        for i in range(n)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["answer", "results"])
def test_importing_many_lines_of_one_message_takes_linear_time(kind: str) -> None:
    def read(records: list[dict[str, Any]]) -> None:
        thread = Thread(Notes())
        for record in records:
            thread.add(record)
        assert thread.nodes()[0]

    assert_linear(read, lambda n: lines(kind, n), size=400, runs=3)
