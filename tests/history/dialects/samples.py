"""Streams and values that several tests use, written by hand after the vendors' formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from history.answers.assembly import Assembler
from history.answers.events import AnswerEnded, AnswerFailed, AnswerStarted, Event, UsageReported, end_reason, piece_of
from history.context.values import Context, ContextEntry, Role
from history.dialects import DIALECTS
from history.entries import ModelOutput, Part, Text, ToolDefinition, ToolRequest, ToolResult

AT = datetime(2026, 3, 4, tzinfo=UTC)
NAMES = tuple(DIALECTS)
PNG = b"\x89PNG\r\n\x1a\n"


def sent(*events: Any) -> bytes:
    """Events as Anthropic and Responses send them, with their type as their name; a text is sent as it is."""
    written = []
    for event in events:
        if isinstance(event, str):
            written.append(event)
        else:
            name = f"event: {event['type']}\n" if isinstance(event.get("type"), str) else ""
            written.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    return "".join(written).encode()


def decode(name: str, *chunks: bytes, provider: str = "acme") -> list[Event]:
    decoder = DIALECTS[name].stream_decoder(provider)
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


def assemble(events: Sequence[Event], *, provider: str = "acme") -> ModelOutput:
    return Assembler(provider=provider).feed_all(events).output(at=AT)


def answer(name: str, *chunks: bytes) -> ModelOutput:
    return assemble(decode(name, *chunks))


def check_type(kind: Any, body: Any) -> None:
    """Whether a request has the type that the vendor's own SDK gives it. Lists are checked lazily."""
    # The lists need the adapter as long as they are looked at.
    adapter = TypeAdapter(kind)
    _look_at(adapter.validate_python(body))


def _look_at(value: Any) -> None:
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            _look_at(item)


# One answer, "Let me look." and two parallel calls, in each language.


def _chat_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}


def _chat_call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    function = {"name": first.pop("name"), "arguments": arguments} if first else {"arguments": arguments}
    return _chat_chunk({"tool_calls": [{"index": index, **first, "function": function}]})


CHAT = sent(
    _chat_chunk({"role": "assistant", "content": ""}),
    _chat_chunk({"content": "Let me "}),
    ": keepalive\n\n",
    _chat_chunk({"content": "look. 你好"}),
    _chat_call(0, "", id="call_a", type="function", name="cpu"),
    _chat_call(0, '{"core"'),
    _chat_call(0, ": 1}"),
    _chat_call(1, "", id="call_b", type="function", name="disk"),
    _chat_call(1, "{}"),
    _chat_chunk({}, "tool_calls"),
    {
        "id": "chatcmpl-1",
        "model": "gpt-x",
        "choices": None,
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    },
    "data: [DONE]\n\n",
)

ANTHROPIC = sent(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "usage": {
                "input_tokens": 30,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 10,
                "output_tokens": 1,
            },
        },
    },
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "look. 你好"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "brand_new_event", "index": 0, "delta": {"type": "text_delta", "text": "?"}},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "call_a", "name": "cpu", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"core"'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "call_b", "name": "disk", "input": {}},
    },
    {"type": "content_block_stop", "index": 2},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": 30, "output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}},
    },
    {"type": "message_stop"},
)

_CALL_A = {"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "cpu", "arguments": '{"core": 1}'}
_CALL_B = {"type": "function_call", "id": "fc_b", "call_id": "call_b", "name": "disk", "arguments": "{}"}
_SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Let me look. 你好", "annotations": []}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-x",
    "status": "completed",
    "output": [_SAID, _CALL_A, _CALL_B],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    },
}

RESPONSES = sent(
    {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-x", "status": "in_progress"}},
    {"type": "response.in_progress", "response": {"id": "resp_1", "model": "gpt-x", "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**_SAID, "content": []}},
    {"type": "response.content_part.added", "output_index": 0, "content_index": 0, "part": {"type": "output_text"}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Let me "},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "look. 你好"},
    {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Let me look. 你好"},
    {"type": "response.output_item.done", "output_index": 0, "item": _SAID},
    {"type": "response.output_item.added", "output_index": 1, "item": {**_CALL_A, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"core"'},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ": 1}"},
    {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": '{"core": 1}'},
    {"type": "response.output_item.done", "output_index": 1, "item": _CALL_A},
    {"type": "response.output_item.added", "output_index": 2, "item": {**_CALL_B, "arguments": ""}},
    {"type": "response.output_item.done", "output_index": 2, "item": _CALL_B},
    {"type": "response.brand_new", "output_index": 2, "delta": "?"},
    {"type": "response.completed", "response": RESPONSE},
)


def gemini_chunk(parts: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, **fields, "index": 0}
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 15 if fields else 2,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 120,
    }
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-x", "responseId": "g1"}


GEMINI_CHUNKS = (
    gemini_chunk([{"text": "Let me "}]),
    gemini_chunk([{"text": "look. 你好"}]),
    gemini_chunk([{"functionCall": {"id": "call_a", "name": "cpu", "args": {"core": 1}}, "thoughtSignature": "c2ln"}]),
    gemini_chunk([{"functionCall": {"id": "call_b", "name": "disk", "args": {}}}], finishReason="STOP"),
)
GEMINI = sent(*GEMINI_CHUNKS)

STREAMS = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic-messages": ANTHROPIC,
    "gemini-generate": GEMINI,
}


# One conversation: the turn of which the rules speak, and what may stand around it.

TOOLS = (
    ToolDefinition(
        name="cpu",
        description="How busy a core is",
        parameters={"type": "object", "properties": {"core": {"type": "integer"}}},
    ),
    ToolDefinition(name="disk"),
)
CALLS = (
    ToolRequest(call_id="call_a", name="cpu", arguments='{"core": 1}'),
    ToolRequest(call_id="call_b", name="disk", arguments="{}"),
)


def input_entry(*parts: Part | str, **fields: Any) -> ContextEntry:
    return ContextEntry(role=Role.MODEL_INPUT, parts=_parts(parts), **fields)


def instructed(text: str) -> ContextEntry:
    return ContextEntry(role=Role.SYSTEM, parts=(Text(text=text),))


def answered(*parts: Part | str, **fields: Any) -> ContextEntry:
    return ContextEntry(role=Role.MODEL_OUTPUT, parts=_parts(parts), **fields)


def result_entry(*results: ToolResult, **fields: Any) -> ContextEntry:
    return ContextEntry(role=Role.TOOL_RESULT, results=results, **fields)


def _parts(parts: Sequence[Part | str]) -> tuple[Part, ...]:
    return tuple(Text(text=part) if isinstance(part, str) else part for part in parts)


def result(call: ToolRequest, *parts: Part | str, **fields: Any) -> ToolResult:
    return ToolResult(call_id=call.call_id, name=call.name, parts=_parts(parts), **fields)


RESULTS = (result(CALLS[0], "12 %"), result(CALLS[1], "disk is gone", status="failed"))


def context(*entries: ContextEntry, system: str = "Be kind.", tools: tuple[ToolDefinition, ...] = ()) -> Context:
    return Context(entries=entries, system=system, tools=tools)


def canonical(*after: ContextEntry) -> Context:
    """Text and two parallel calls, their results, and the given entries."""
    return context(
        input_entry("How is it?"), answered("Let me look.", *CALLS), result_entry(*RESULTS), *after, tools=TOOLS
    )


# Below these, names are people's own.
_OF_PEOPLE = (
    "args",
    "response",
    "parameters",
    "parametersJsonSchema",
    "responseJsonSchema",
    "responseSchema",
    "labels",
)


def in_snake_case(said: Any) -> Any:
    """A request of Gemini in the spelling of protocol buffers, which Google reads just as well."""
    if isinstance(said, list):
        return [in_snake_case(one) for one in said]
    if not isinstance(said, dict):
        return said
    return {
        re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): (
            value if name in _OF_PEOPLE else in_snake_case(value)
        )
        for name, value in said.items()
    }


def events_of(output: ModelOutput) -> Iterator[Event]:
    """The events that assemble into this answer."""
    yield AnswerStarted(model=output.model, request_id=output.request_id, provider=output.provider)
    for place, part in enumerate(output.parts):
        yield piece_of(part, str(place))
    if output.usage:
        yield UsageReported(usage=output.usage)
    if output.status == "complete":
        yield AnswerEnded(reason=end_reason(output.end_reason or "stop"))
    elif output.status == "failed":
        yield AnswerFailed(message=output.error)
