"""Decoders, linter, redaction and importers take linear time for any repeated input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bench.growth import assert_linear
from history.answers.assembly import Assembler
from history.answers.events import AnswerEnded, AnswerStarted, Event, ReasoningPiece, TextPiece, ToolCallPiece
from history.dialects import DIALECTS
from history.dialects.json_access import as_bytes
from history.entries import Entry, ModelInput, ModelOutput, Text, ToolRequest
from history.formats.base import Notes
from history.formats.readers.claude_code import Thread
from history.linting.linter import lint_request
from history.linting.parse_input import LintInput
from history.redaction import detectors, redacted
from history.redaction.walker import Redactor, Redactors

pytestmark = pytest.mark.no_database

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
    assert_linear(lambda body: lint_request(LintInput(language=language, body=body)), make, size=150, runs=3)


def streamed(language: str, events: list[Event]) -> bytes:
    encoder = DIALECTS[language].stream_encoder(model="m", reply_id="r", created=1, with_usage=True)
    written = [
        encoder.feed(event) for event in [AnswerStarted(model="m", request_id="r"), *events, AnswerEnded(reason="stop")]
    ]
    return b"".join([*written, encoder.end()])


def calls(n: int) -> list[Event]:
    return [ToolCallPiece(part=f"c{i}", call_id=f"c{i}", name="f", arguments="{}") for i in range(n)]


def replied(language: str, n: int) -> bytes:
    """A whole reply of many parts, not streamed."""
    output = Assembler(model="m").feed_all(
        [AnswerStarted(model="m", request_id="r"), *calls(n), AnswerEnded(reason="stop")]
    )
    return as_bytes(DIALECTS[language].encode_reply(output.output(), reply_id="r", created=1))


STREAMS: dict[str, tuple[int, int, Callable[[str, int], bytes]]] = {
    "many pieces": (300, 65_536, lambda language, n: streamed(language, [TextPiece(part="0", text="x ")] * n)),
    "thoughts": (300, 65_536, lambda language, n: streamed(language, [ReasoningPiece(part="0", text="x ")] * n)),
    "many calls": (100, 65_536, lambda language, n: streamed(language, calls(n))),
    "one long piece": (100_000, 100, lambda language, n: streamed(language, [TextPiece(part="0", text="x" * n)])),
    "single bytes": (30, 1, lambda language, n: streamed(language, [TextPiece(part="0", text="x ")] * n)),
    "space": (20_000, 1, lambda language, n: b" " * n + streamed(language, [])),
    "comments": (1_500, 65_536, lambda language, n: b": ping\n\n" * n + streamed(language, [])),
    "data lines": (1_500, 65_536, lambda language, n: b"data: {\n" + b"data: \n" * n + b"data: }\n\n"),
    "a whole reply": (300, 100, replied),
    "nested": (20_000, 1_000, lambda language, n: b"data: " + b"[" * n + b"\n\n"),
}


@pytest.mark.parametrize("shape", STREAMS)
@pytest.mark.parametrize("language", DIALECTS)
def test_reading_a_reply_takes_linear_time(language: str, shape: str) -> None:
    size, chunk, make = STREAMS[shape]

    def read(stream: bytes) -> None:
        decoder, answer = DIALECTS[language].stream_decoder("vendor"), Assembler()
        for start in range(0, len(stream), chunk):
            answer.feed_all(decoder.feed(stream[start : start + chunk]))
        answer.feed_all(decoder.close())
        answer.output()

    assert_linear(read, lambda n: make(language, n), size=size)


SECRET = "sk-proj-" + "A1b2C3d4" * 6
KEPT: dict[str, Callable[[int], Entry]] = {
    "parts": lambda n: ModelOutput(parts=tuple(Text(text=f"{i} {SECRET}") for i in range(n // 100))),
    "one text": lambda n: ModelInput(channel="x", parts=(Text(text=f"{SECRET} and words " * (n // 60)),)),
    "metadata": lambda n: ModelInput(channel="x", parts=(), metadata={f"k{i}": SECRET for i in range(n // 100)}),
    "arguments": lambda n: ModelOutput(
        parts=(ToolRequest(call_id="c", name="f", arguments=as_bytes({"a": [SECRET] * (n // 60)}).decode()),)
    ),
    "nested arguments": lambda n: ModelOutput(
        parts=(ToolRequest(call_id="c", name="f", arguments='{"a":[' * (n // 8) + SECRET),)
    ),
    "mail addresses": lambda n: ModelInput(channel="x", parts=(Text(text="a.b@c.d-" * (n // 8)),)),
    "digits": lambda n: ModelInput(channel="x", parts=(Text(text="1234 " * (n // 5)),)),
    "escapes": lambda n: ModelInput(channel="x", parts=(Text(text='\\"' * (n // 2)),)),
}


@pytest.mark.parametrize("shape", KEPT)
def test_redacting_an_entry_takes_linear_time(shape: str) -> None:
    personal: tuple[Redactor, ...] = detectors.PERSONAL
    redactors = Redactors(credentials=True, others=personal)
    assert_linear(lambda entry: redacted(entry, redactors), KEPT[shape], size=30_000)


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
        thread.end()
        assert thread.conversation("s").nodes

    assert_linear(read, lambda n: lines(kind, n), size=400, runs=3)
