"""An answer that is to be JSON of a schema: asked for in any language, told to every vendor in its own."""

import json
from itertools import permutations
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as genai_types
from pydantic import BaseModel

from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.dialects.anthropic_messages.request_encoder import schema_of_answer
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from tests.clients import SMALLEST_CALLS, RunningRelay, send_request
from tests.relay.digest.programs import captured
from tests.vendors import Vendors, says
from tests.vendors.setup import endpoint_at

# What passes through on the wire is the same on every database.
pytestmark = pytest.mark.any_database

CHAT, RESPONSES, ANTHROPIC, GEMINI = DIALECTS
NOT_CARRIED = "x-parley-not-carried"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = {"name": "Weather", "schema": SCHEMA, "strict": True}
# Gemini has it in one field with the limit of tokens.
JSON = {"responseMimeType": "application/json", "maxOutputTokens": 9}
# How each language asks for it, and how for any object at all.
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"response_format": {"type": "json_schema", "json_schema": FORM}},
    RESPONSES: {"text": {"format": {"type": "json_schema", **FORM}}},
    ANTHROPIC: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    GEMINI: {"generationConfig": {**JSON, "responseJsonSchema": SCHEMA}},
}
ANY: dict[str, dict[str, Any]] = {
    CHAT: {"response_format": {"type": "json_object"}},
    RESPONSES: {"text": {"format": {"type": "json_object"}}},
    GEMINI: {"generationConfig": JSON},
}
OF_OPENAI = (CHAT, RESPONSES)


def only(vendors: Vendors, dialect: str, model: str = "model") -> None:
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, dialect, models=(Model(name=model),)))]))


def unnamed(asked: dict[str, Any]) -> dict[str, Any]:
    """As it is told where the caller's language has neither a name nor `strict`."""
    return dict(json.loads(json.dumps(asked).replace('"Weather"', '"answer"').replace(', "strict": true', "")))


@pytest.mark.parametrize(("dialect", "upstream"), list(permutations(DIALECTS, 2)))
def test_the_schema_of_an_answer_is_told_to_every_vendor(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str, upstream: str
) -> None:
    only(vendors, upstream)
    path, body = SMALLEST_CALLS[dialect]
    answered = send_request(relay, path, {**body, **ASKED[dialect]}, x_api_key=key)
    wanted = ASKED[upstream] if dialect in OF_OPENAI else unnamed(ASKED[upstream])
    sent = vendors.requests[0].body
    assert {name: sent[name] for name in wanted} == {**wanted, **_limited(sent, wanted)}
    assert (answered.status, answered.headers.get(NOT_CARRIED)) == (200, None)


def _limited(sent: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Gemini has it in one field with the limit of tokens."""
    return {name: {**sent[name], **wanted[name]} for name in wanted if name == "generationConfig"}


@pytest.mark.parametrize(("dialect", "upstream"), list(permutations(ANY, 2)))
def test_so_is_that_it_is_to_be_an_object(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str, upstream: str
) -> None:
    only(vendors, upstream)
    path, body = SMALLEST_CALLS[dialect]
    answered = send_request(relay, path, {**body, **ANY[dialect]}, x_api_key=key)
    sent = vendors.requests[0].body
    assert {name: sent[name] for name in ANY[upstream]} == {**ANY[upstream], **_limited(sent, ANY[upstream])}
    assert NOT_CARRIED not in answered.headers


@pytest.mark.parametrize("dialect", ANY)
def test_anthropic_has_no_word_for_an_object_of_any_form(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str
) -> None:
    only(vendors, ANTHROPIC)
    path, body = SMALLEST_CALLS[dialect]
    answered = send_request(relay, path, {**body, **ANY[dialect]}, x_api_key=key)
    assert answered.headers[NOT_CARRIED] == "option_not_carried:response_format"


@pytest.mark.parametrize("upstream", OF_OPENAI)
def test_openai_takes_no_schema_of_anything_but_an_object(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    only(vendors, upstream)
    path, body = SMALLEST_CALLS[GEMINI]
    several = {"responseMimeType": "application/json", "responseSchema": {"type": "ARRAY", "items": {"type": "STRING"}}}
    answered = send_request(relay, path, {**body, "generationConfig": several}, x_api_key=key)
    assert answered.headers[NOT_CARRIED] == "option_not_carried:response_format"
    assert not {"response_format", "text"} & vendors.requests[0].body.keys()


def test_anthropic_is_told_no_bounds_that_it_refuses() -> None:
    """As its own SDK does it."""
    schema = {
        "type": "object",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "How many."},
            "at": {"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "week"}]},
            "all": {"type": "array", "items": {"$ref": "#/$defs/one"}, "minItems": 1, "maxItems": 3},
        },
        "$defs": {"one": {"type": "object", "properties": {}, "additionalProperties": True}},
    }
    assert schema_of_answer(schema) == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "How many.\n\n{minimum: 1}"},
            "at": {
                "anyOf": [{"type": "string", "format": "date"}, {"type": "string", "description": "{format: week}"}]
            },
            "all": {"type": "array", "items": {"$ref": "#/$defs/one"}, "minItems": 1, "description": "{maxItems: 3}"},
        },
        "$defs": {"one": {"type": "object", "properties": {}, "additionalProperties": False}},
        "additionalProperties": False,
    }


@pytest.mark.parametrize("upstream", [CHAT, RESPONSES, ANTHROPIC])
def test_gemini_clis_router_gets_an_object_of_its_form_from_another_vendor(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    request = captured("gemini-cli-1")
    only(vendors, upstream, request["path"].rpartition("/")[2].partition(":")[0])
    answered = send_request(relay, request["path"], request["body"], x_goog_api_key=key)
    lost = [name for name in answered.headers[NOT_CARRIED].split(", ") if "generationConfig" in name]
    assert lost == ["option_not_carried:generationConfig.topK"]
    asked = request["body"]["generationConfig"]["responseJsonSchema"]
    told = _schema_in(vendors.requests[0].body)
    assert (asked["type"], told["type"]) == ("OBJECT", "object")
    assert set(told["properties"]) == set(asked["properties"])


def _schema_in(body: dict[str, Any]) -> Any:
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    return (body.get("text") or body["output_config"])["format"]["schema"]


class Weather(BaseModel):
    city: str


@pytest.mark.parametrize("upstream", DIALECTS)
def test_the_sdks_parse_what_another_vendor_answers(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    only(vendors, upstream)
    vendors.plays(upstream, *[says('{"city": ', '"Oslo"}')] * 4)
    of_openai = openai.OpenAI(api_key=key, base_url=f"{relay.url}/v1", max_retries=0)
    hi: Any = [{"role": "user", "content": "hi"}]
    of_chat = of_openai.chat.completions.parse(model="model", messages=hi, response_format=Weather)
    assert of_chat.choices[0].message.parsed == Weather(city="Oslo")
    assert of_openai.responses.parse(model="model", input="hi", text_format=Weather).output_parsed == Weather(
        city="Oslo"
    )
    of_anthropic = anthropic.Anthropic(api_key=key, base_url=relay.url, max_retries=0)
    parsed = of_anthropic.messages.parse(model="model", max_tokens=9, messages=hi, output_format=Weather)
    assert parsed.parsed_output == Weather(city="Oslo")
    of_google = genai.Client(api_key=key, http_options=genai_types.HttpOptions(base_url=relay.url))
    config = genai_types.GenerateContentConfig(response_mime_type="application/json", response_schema=Weather)
    assert of_google.models.generate_content(model="model", contents="hi", config=config).parsed == Weather(city="Oslo")
    assert all('"city"' in json.dumps(seen.body) for seen in vendors.requests)
