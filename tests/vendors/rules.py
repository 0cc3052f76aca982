"""What each vendor refuses, in its own words, as far as recordings and documents show it.

`problem_with` gives the message of the vendor's 400, or None. What is enforced is that every call of a tool is answered
beside it and completely, and that signed reasoning comes back as it was; role alternation is only good manners.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Json = Mapping[str, Any]

SENTINEL = "skip_thought_signature_validator"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


def problem_with(dialect: str, body: Json, headers: Mapping[str, str], signatures: set[str]) -> str | None:
    """`signatures`: those that this vendor has given out."""
    try:
        return next(RULES[dialect](body, headers, signatures), None)
    except (KeyError, TypeError, AttributeError) as error:
        return f"The request is malformed: {error!r}"


def _openai_chat(body: Json, headers: Mapping[str, str], signatures: set[str]) -> Iterator[str]:
    if not body.get("model"):
        yield "you must provide a model parameter"
    if not body.get("messages"):
        yield "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty one."
    if "stream_options" in body and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    yield from _tool_names([tool["function"]["name"] for tool in body.get("tools", [])])
    yield from _of_openai([tool["function"] for tool in body.get("tools", [])])
    yield from _chosen(body.get("tool_choice"), [tool["function"]["name"] for tool in body.get("tools", [])])
    waiting: list[str] = []
    for message in body.get("messages", []):
        yield from _chat_message(message, waiting)
        if message["role"] == "tool":
            waiting = [call_id for call_id in waiting if call_id != message["tool_call_id"]]
        else:
            waiting = [call["id"] for call in message.get("tool_calls", [])]
    if waiting:
        yield _UNANSWERED + ", ".join(waiting)


_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)


def _chat_message(message: Json, waiting: Sequence[str]) -> Iterator[str]:
    role = message["role"]
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield f"Invalid value: '{role}'."
    if role == "tool" and message.get("tool_call_id") not in waiting:
        yield "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
    if role != "tool" and waiting:
        yield _UNANSWERED + ", ".join(waiting)
    nothing: tuple[object, ...] = (None, []) if role == "tool" else (None, "", [])
    if message.get("content") in nothing and not message.get("tool_calls"):
        yield f"Invalid value for 'content': expected a string, got {json.dumps(message.get('content'))}."
    for call in message.get("tool_calls", []):
        if len(call["id"]) > 40:
            yield "Invalid 'messages[].tool_calls[].id': string too long. Expected a string with maximum length 40."
        if not isinstance(call["function"]["arguments"], str):
            yield "Invalid type for 'messages[].tool_calls[].function.arguments': expected a string."


def _openai_responses(body: Json, headers: Mapping[str, str], signatures: set[str]) -> Iterator[str]:
    if not body.get("model"):
        yield "Missing required parameter: 'model'."
    items = body.get("input", [])
    if not items:
        yield "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
    functions = [tool for tool in body.get("tools", []) if tool["type"] == "function"]
    yield from _tool_names([tool["name"] for tool in functions])
    yield from _of_openai(functions)
    yield from _chosen(body.get("tool_choice"), [tool.get("name") for tool in body.get("tools", [])])
    if isinstance(items, str):
        return
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    yield from (f"No tool output found for function call {call_id}." for call_id in calls if call_id not in outputs)
    yield from (
        f"No tool call found for function call output with call_id {call_id}."
        for call_id in outputs
        if call_id not in calls
    )
    for item, after in pairwise([*items, {}]):
        if item.get("type") == "reasoning":
            yield from _reasoning_item(item, after, signatures)
        # DeepSeek's rule, stricter than OpenAI's: calls in a group, with thinking between them, then their outputs.
        followers = ("function_call", "function_call_output", "reasoning")
        if item.get("type") == "function_call" and after.get("type") not in followers:
            yield f"No tool output found for function call {item['call_id']}."


def _reasoning_item(item: Json, after: Json, signatures: set[str]) -> Iterator[str]:
    follows = after.get("type") in ("function_call", "reasoning") or after.get("role") == "assistant"
    if not follows:
        yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
    if item.get("encrypted_content") not in signatures:
        yield "The encrypted content could not be verified."


def _anthropic(body: Json, headers: Mapping[str, str], signatures: set[str]) -> Iterator[str]:
    if not headers.get("anthropic-version"):
        yield "anthropic-version: header is required"
    for name in ("model", "max_tokens", "messages"):
        if not body.get(name):
            yield f"{name}: Field required"
    given = [tool for tool in body.get("tools", []) if "input_schema" in tool]
    yield from _tool_names([tool["name"] for tool in given])
    yield from _chosen(body.get("tool_choice"), [tool.get("name") for tool in body.get("tools", [])])
    for place, tool in enumerate(given):
        if tool["input_schema"].get("type") != "object":
            yield f"tools.{place}.custom.input_schema.type: Input should be 'object'"
        if wrong := next(_wrong_types(tool["input_schema"]), None):
            yield f"tools.{place}.custom.input_schema: JSON schema is invalid ('{wrong}')"
    if body.get("thinking", {}).get("type") == "enabled":
        if body["thinking"]["budget_tokens"] >= body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
        if body.get("temperature", 1) != 1:
            yield "`temperature` may only be set to 1 when thinking is enabled."
    waiting: list[str] = []
    for place, message in enumerate(body.get("messages", [])):
        blocks = _blocks(message)
        yield from _anthropic_message(place, message, blocks, headers, signatures)
        yield from _anthropic_results(place, blocks, waiting)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if waiting:
        yield _without_results(len(body["messages"]) - 1, waiting)


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _anthropic_message(
    place: int, message: Json, blocks: list[Json], headers: Mapping[str, str], signatures: set[str]
) -> Iterator[str]:
    inline = message["role"] == "system" and "mid-conversation-system" in headers.get("anthropic-beta", "")
    if message["role"] not in ("user", "assistant") and not inline:
        yield f"messages.{place}.role: Input should be 'user' or 'assistant'"
    if not blocks:
        yield f"messages.{place}: all messages must have non-empty content"
    for block in blocks:
        if block["type"] == "text" and not block["text"].strip():
            yield "messages: text content blocks must be non-empty"
        if block["type"] == "thinking" and block["signature"] not in signatures:
            yield f"messages.{place}.content: Invalid `signature` in `thinking` block"
        if block["type"] == "tool_use" and not _CALL_ID.fullmatch(block["id"]):
            yield f"messages.{place}.content.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if block["type"] == "tool_use" and not isinstance(block["input"], dict):
            yield f"messages.{place}.content.tool_use.input: Input should be a valid dictionary"
    kinds = [block["type"] for block in blocks]
    if "tool_use" in kinds and "text" in kinds[kinds.index("tool_use") :]:
        yield _without_results(place, [block["id"] for block in blocks if block["type"] == "tool_use"])


def _anthropic_results(place: int, blocks: list[Json], waiting: list[str]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    kinds = [block["type"] for block in blocks]
    for call_id in results:
        if call_id not in waiting:
            yield f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}"
    missing = [call_id for call_id in waiting if call_id not in results]
    if missing or (results and kinds[: len(results)] != ["tool_result"] * len(results)):
        yield _without_results(place - 1, missing or results)


def _without_results(place: int, call_ids: list[str]) -> str:
    return (
        f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(call_ids)}. Each `tool_use` block must have a corresponding `tool_result` block next to it."
    )


def _gemini(body: Json, headers: Mapping[str, str], signatures: set[str]) -> Iterator[str]:
    contents = body.get("contents", [])
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
    declared = [tool for group in body.get("tools", []) for tool in group.get("functionDeclarations", [])]
    yield from _tool_names([tool["name"] for tool in declared])
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    for name in calling.get("allowedFunctionNames", []):
        yield from _chosen({"name": name}, [tool["name"] for tool in declared])
    before: list[Json] = []
    if contents and contents[0].get("role", "user") != "user":
        yield "Please ensure that multiturn requests begin with a user role."
    for content in contents:
        parts = content.get("parts", [])
        if content.get("role", "user") not in ("user", "model"):
            yield "Please use a valid role: user, model."
        if not parts or any(_is_empty(part) for part in parts):
            yield "* GenerateContentRequest.contents: contents.parts must not be empty."
        yield from _gemini_turn(parts, before, signatures)
        before = parts
    if any("functionCall" in part for part in before):
        yield _COUNTS


_COUNTS = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


def _is_empty(part: Json) -> bool:
    return not part or (part.get("text") == "" and "thoughtSignature" not in part)


def _gemini_turn(parts: list[Json], before: list[Json], signatures: set[str]) -> Iterator[str]:
    calls = [part for part in parts if "functionCall" in part]
    asked = [part["functionCall"]["name"] for part in before if "functionCall" in part]
    answered = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
    if sorted(asked) != sorted(answered):
        yield _COUNTS
    if calls and "thoughtSignature" not in calls[0]:
        yield f"Function call `{calls[0]['functionCall']['name']}` is missing a thought_signature."
    for part in parts:
        if part.get("thoughtSignature", SENTINEL) not in signatures | {SENTINEL}:
            yield "Thought signature is not valid."


def _tool_names(names: list[str]) -> Iterator[str]:
    for name in names:
        if not _TOOL_NAME.fullmatch(name):
            yield f"tools.name: '{name}' does not match '^[a-zA-Z0-9_-]{{1,64}}$'"
        if names.count(name) > 1:
            yield f"tools: Tool names must be unique: {name}"


def _chosen(choice: Any, names: list[str]) -> Iterator[str]:
    """Each vendor has its own words for it."""
    told = choice if isinstance(choice, Mapping) else {}
    name = told.get("function", told).get("name")
    if name and name not in names:
        yield f"Tool choice '{name}' not found in 'tools' parameter."


_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


def _of_openai(functions: list[Json]) -> Iterator[str]:
    for function in functions:
        schema = function.get("parameters", {})
        if schema and schema.get("type") != "object":
            told = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
            yield f"Invalid schema for function '{function['name']}': {told}"
        if schema and "properties" not in schema:
            yield f"Invalid schema for function '{function['name']}': In context=(), object schema missing properties."
        if wrong := next(_wrong_types(function.get("parameters", {})), None):
            yield f"Invalid schema for function '{function['name']}': '{wrong}' is not valid under any of the schemas."


def _wrong_types(schema: Json) -> Iterator[str]:
    """What stands where JSON Schema wants one of its types, as far as real tools nest."""
    told = schema.get("type", [])
    yield from (str(word) for word in ([told] if isinstance(told, str) else told) if word not in _TYPES)
    within = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), schema.get("items")]
    yield from (wrong for inner in within if isinstance(inner, Mapping) for wrong in _wrong_types(inner))


Rules = Callable[[Json, Mapping[str, str], set[str]], Iterator[str]]
RULES: dict[str, Rules] = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic-messages": _anthropic,
    "gemini-generate": _gemini,
}
