"""Requests with anything anywhere: decoders, encoders and the linter answer, or raise the domain error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from history.dialects import DIALECTS
from history.dialects.types import DialectError, context_of
from history.linting.linter import lint_request
from history.linting.parse_input import LintInput, NotAConversation
from tests.factories import example_count

pytestmark = pytest.mark.no_database

AT = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "format": "date", "enum": ["a"]}, "b": {"type": "array", "items": {}}},
    "required": ["a"],
}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
PICTURE = "data:image/png;base64,aGVsbG8="


def chat() -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    shown = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": shown},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "y"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "temperature": 1,
        "stop": ["x"],
        "max_tokens": 5,
        "reasoning_effort": "low",
    }


def responses() -> dict[str, Any]:
    return {
        "model": "m",
        "instructions": "s",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "y"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
        "reasoning": {"effort": "low"},
    }


def anthropic() -> dict[str, Any]:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
    return {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, picture]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "y"}]},
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "f"},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }


def gemini() -> dict[str, Any]:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}
    return {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "x"}, picture]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "y"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {
            "temperature": 1,
            "responseSchema": SCHEMA,
            "thinkingConfig": {"thinkingBudget": 100},
            "stopSequences": ["x"],
        },
    }


REQUESTS = {
    "openai-chat": chat(),
    "openai-responses": responses(),
    "anthropic-messages": anthropic(),
    "gemini-generate": gemini(),
}


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from places_in(item, (*place, name))


PLACES = {name: list(places_in(body))[1:] for name, body in REQUESTS.items()}


def with_value(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of the tree with this value there; where another change has removed the place, the tree as it is."""
    if not place:
        return value
    is_there = place[0] in tree if isinstance(tree, dict) else isinstance(tree, list) and place[0] in range(len(tree))
    if not is_there:
        return tree
    changed = tree.copy()
    changed[place[0]] = with_value(tree[place[0]], place[1:], value)
    return changed


@dataclass(frozen=True)
class Nested:
    """Something nested, in few words: printing it would go too deep itself."""

    depth: int

    def value(self) -> Any:
        value: Any = None
        for number in range(self.depth):
            value = [value] if number % 2 else {"items": value}
        return value


TEXTS = st.sampled_from(["", "\ud800", "x\udc00y", "\0", "data:", "data:;base64,%", "a" * 300]) | st.text(max_size=5)
NAMES = st.sampled_from(["type", "format", "text", "content", "items", "name", "parts", "$ref", "enum"]) | TEXTS
NUMBERS = st.sampled_from([0, -1, 2**63, -(2**70), 10**400, 1e308, float("inf"), float("nan"), 0.5])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
) | st.builds(Nested, st.sampled_from([30, 90, 400, 3_000]))


@pytest.mark.parametrize("language", REQUESTS)
def test_no_request_raises_anything_but_the_domain_error(language: str) -> None:
    @settings(max_examples=example_count(120), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(changes=st.lists(st.tuples(st.sampled_from(PLACES[language]), VALUES), min_size=1, max_size=3))
    def try_request(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
        body = REQUESTS[language]
        for place, value in changes:
            body = with_value(body, place, value.value() if isinstance(value, Nested) else value)
        check(language, body)

    try_request()


@pytest.mark.parametrize("language", REQUESTS)
@pytest.mark.parametrize("body", [None, [], "x", 5, {}, {"messages": 5, "input": 5, "contents": 5}])
def test_what_is_no_request_is_refused_or_empty(language: str, body: Any) -> None:
    check(language, body)


def check(language: str, body: Any) -> None:
    try:
        decoded = DIALECTS[language].decode_request(body, at=AT)
    except DialectError:
        decoded = None
    if isinstance(body, dict):
        with suppress(NotAConversation):
            lint_request(LintInput(language=language, body=body))
    if decoded is None:
        return
    options = replace(decoded.options, media=decoded.blobs.__getitem__)
    for dialect in DIALECTS.values():
        try:
            encoded = dialect.encode(context_of(decoded), options)
        except DialectError:
            continue
        json.dumps(encoded.body).encode("utf-8")
        encoded.path.encode("ascii")


@pytest.mark.parametrize("language", REQUESTS)
def test_a_lone_surrogate_as_model_and_an_object_as_format_are_written(language: str) -> None:
    body = {**REQUESTS[language], "model": "\ud800"}
    for place in PLACES[language]:
        if place[-1] == "format" and place[-2] == "a":
            check(language, with_value(body, place, {}))
    check(language, body)
