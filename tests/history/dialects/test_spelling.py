"""Gemini's names in camelCase, in snake_case and mixed give the same request."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from google.genai import types

from history.dialects import DIALECTS, CallOptions, DecodedRequest, context_of
from history.dialects.gemini_generate.normalisation import to_camel_case
from history.linting import lint_request, parse_conversation
from tests.history.dialects.samples import AT, PNG, in_snake_case

pytestmark = pytest.mark.no_database

PNG_64 = base64.b64encode(PNG).decode()
# Names that people chose, in the spelling that is the other one for the API.
OWN = {"thoughtSignature": {"mime_type": "a", "mimeType": "b"}, "inline_data": 1}
SCHEMA = {"type": "object", "properties": {"file_uri": {"type": "string"}, "topK": {"type": "integer"}}}
REQUEST: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be kind."}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "See:"},
                {
                    "inlineData": {"mimeType": "image/png", "data": PNG_64, "displayName": "a.png"},
                    "videoMetadata": {"startOffset": "1s"},
                },
                {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.org/a.mp4"}},
                {"executableCode": {"code": "1", "language": "PYTHON"}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": OWN}, "thoughtSignature": "c2ln"}]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "look",
                        "response": {"output": OWN},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG_64}}],
                    }
                }
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "look", "parametersJsonSchema": SCHEMA},
                {"name": "b", "parameters": SCHEMA},
            ]
        },
        {"googleSearch": {}},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "cachedContent": "cachedContents/1",
    "labels": {"my_team": "blue", "myTeam": "red"},
    "generationConfig": {
        "maxOutputTokens": 9,
        "stopSequences": ["END"],
        "topP": 0.5,
        "topK": 3,
        "temperature": 1,
        "responseMimeType": "application/json",
        "responseSchema": SCHEMA,
        "responseJsonSchema": SCHEMA,
        "thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 7, "includeThoughts": True},
    },
}


def read(body: Any) -> DecodedRequest:
    return DIALECTS["gemini-generate"].decode_request(body, at=AT)


def entries(decoded: DecodedRequest) -> Any:
    return decoded.entries


def test_a_request_is_read_alike_in_both_spellings() -> None:
    assert read(in_snake_case(REQUEST)) == read(REQUEST)


def test_all_of_a_request_in_snake_case_is_read() -> None:
    decoded = read(in_snake_case(REQUEST))
    question, value, found = entries(decoded)
    _, picture, film, _ = question.parts
    assert (picture.media_type, picture.name) == ("image/png", "a.png")
    assert (film.media_type, film.url) == ("video/mp4", "https://example.org/a.mp4")
    assert [type(part).__name__ for part in value.parts] == ["Reasoning", "ToolRequest"]
    assert [type(part).__name__ for part in found.results[0].parts] == ["Text", "Media"]
    assert (decoded.system, [tool.name for tool in decoded.tools]) == ("Be kind.", ["look", "b", "googleSearch"])
    options = decoded.options
    assert (options.max_tokens, options.stop, options.top_p, options.tool_name) == (9, ("END",), 0.5, "look")
    assert options.reasoning_effort == "low"
    assert set(decoded.extra) == {"safetySettings", "cachedContent", "labels", "generationConfig"}


def test_what_people_name_themselves_keeps_its_name() -> None:
    for body in (REQUEST, in_snake_case(REQUEST)):
        decoded = read(body)
        _, value, found = entries(decoded)
        assert '"mime_type":"a","mimeType":"b"' in value.tool_requests[0].arguments
        assert '"mime_type":"a","mimeType":"b"' in found.results[0].text
        assert [dict(tool.parameters["properties"]) for tool in decoded.tools[:2]] == [SCHEMA["properties"]] * 2
        assert decoded.extra["labels"] == {"my_team": "blue", "myTeam": "red"}
        assert decoded.extra["generationConfig"]["responseJsonSchema"] == SCHEMA


def test_the_mixture_that_googles_own_sdk_sends_is_read() -> None:
    """As google-genai 3.1.0 was seen to write it."""
    part = {"inlineData": {"data": PNG_64, "mime_type": "image/png"}}
    body = {
        "contents": [{"role": "user", "parts": [part]}],
        "tools": [{"functionDeclarations": [{"name": "look", "parameters_json_schema": SCHEMA}]}],
        "generationConfig": {"thinkingConfig": {"thinking_level": "HIGH"}},
    }
    decoded = read(body)
    (picture,) = entries(decoded)[0].parts
    assert (picture.media_type, decoded.options.reasoning_effort) == ("image/png", "high")
    assert decoded.tools[0].parameters == SCHEMA
    encoded = DIALECTS["openai-chat"].encode(context_of(decoded), CallOptions(media=decoded.blobs.__getitem__))
    assert encoded.body["messages"][0]["content"][0]["type"] == "image_url"
    assert encoded.body["tools"][0]["function"]["parameters"] == SCHEMA


def part(value: Any) -> dict[str, Any]:
    return {"contents": [{"parts": [value]}]}


PLACES: list[tuple[Any, Callable[[Any], dict[str, Any]]]] = [
    (types.Part, part),
    (types.Blob, lambda said: part({"inlineData": said})),
    (types.FileData, lambda said: part({"fileData": said})),
    (types.FunctionCall, lambda said: part({"functionCall": said})),
    (types.FunctionResponse, lambda said: part({"functionResponse": said})),
    (types.FunctionResponsePart, lambda said: part({"functionResponse": {"parts": [said]}})),
    (types.VideoMetadata, lambda said: part({"videoMetadata": said})),
    (types.Tool, lambda said: {"contents": [], "tools": [said]}),
    (types.FunctionDeclaration, lambda said: {"contents": [], "tools": [{"functionDeclarations": [said]}]}),
    (types.ToolConfig, lambda said: {"contents": [], "toolConfig": said}),
    (types.FunctionCallingConfig, lambda said: {"contents": [], "toolConfig": {"functionCallingConfig": said}}),
    (types.GenerationConfig, lambda said: {"contents": [], "generationConfig": said}),
    (types.ThinkingConfig, lambda said: {"contents": [], "generationConfig": {"thinkingConfig": said}}),
]


@pytest.mark.parametrize(("kind", "around"), PLACES, ids=[kind.__name__ for kind, _ in PLACES])
def test_every_name_that_googles_own_sdk_has_is_known(kind: Any, around: Callable[[Any], dict[str, Any]]) -> None:
    """So that a newer SDK, with more names, is noticed here."""
    camel = {field.alias: 1 for field in kind.model_fields.values()}
    assert to_camel_case(around(dict.fromkeys(kind.model_fields, 1))) == around(camel)


def test_unknown_names_stay_as_they_are() -> None:
    body = {"contents": [], "my_field": {"mime_type": 1}, "generation_config": {"new_knob": 1, "top_k": 2}}
    assert read(body).extra == {"my_field": {"mime_type": 1}, "generationConfig": {"new_knob": 1, "topK": 2}}


def test_camel_case_wins_over_snake_case_unless_it_is_empty() -> None:
    system = {"parts": [{"text": "Rhyme."}]}
    body = {"contents": [], "system_instruction": system, "systemInstruction": {"parts": [{"text": "Be kind."}]}}
    assert read(body).system == "Be kind."
    assert read({**body, "systemInstruction": None}).system == "Rhyme."


def test_a_request_in_camel_case_stays_what_it_was() -> None:
    assert to_camel_case(REQUEST) == REQUEST


@pytest.mark.parametrize("name", ["generateContentRequest", "generate_content_request"])
def test_a_request_of_which_tokens_are_counted_may_come_in_an_envelope(name: str) -> None:
    for body in (REQUEST, in_snake_case(REQUEST)):
        assert read({name: body}) == read(REQUEST)


def test_the_linter_finds_the_same_in_both_spellings() -> None:
    """And what it repairs has each option once."""
    camel, snake = (lint_request(parse_conversation(body)) for body in (REQUEST, in_snake_case(REQUEST)))
    assert camel == snake
    native = next(verdict for verdict in snake.verdicts if verdict.is_native)
    assert native.repaired is not None
    assert "generation_config" not in native.repaired
    assert native.repaired["generationConfig"]["topK"] == 3
