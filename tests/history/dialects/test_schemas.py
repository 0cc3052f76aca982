"""Google's schemas as JSON Schema; and JSON Schema in their place as it is."""

from typing import Any

import pytest
from google.genai import types

from history.dialects.gemini_generate.normalisation import as_json_schema

pytestmark = pytest.mark.no_database

JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"type": ["string", "null"], "enum": ["STRING", None]},
        "nullable": {"$ref": "#/$defs/a"},
        "any": True,
    },
    "additionalProperties": False,
    "$defs": {"a": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}},
    "required": ["type"],
}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        (
            {"type": "ARRAY", "items": {"type": "NUMBER"}, "minItems": "2"},
            {"type": "array", "items": {"type": "number"}, "minItems": 2},
        ),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "STRING", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"anyOf": [{"type": "STRING"}], "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"any_of": [{"type": "INTEGER"}], "max_length": "9"}, {"anyOf": [{"type": "integer"}], "maxLength": 9}),
        ({"type": "OBJECT", "propertyOrdering": ["a"], "property_ordering": ["a"]}, {"type": "object"}),
        ({"type": "TYPE_UNSPECIFIED", "description": "any"}, {"description": "any"}),
        (
            {"ref": "#/defs/a", "defs": {"a": {"type": "BOOLEAN"}}},
            {"$ref": "#/defs/a", "$defs": {"a": {"type": "boolean"}}},
        ),
    ],
)
def test_a_schema_of_google_becomes_json_schema(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert as_json_schema(given) == wanted


def test_what_is_json_schema_already_stays_as_it_is() -> None:
    assert as_json_schema(JSON_SCHEMA) == JSON_SCHEMA


def test_the_names_that_people_give_are_theirs() -> None:
    own = {"type": "OBJECT", "properties": {"nullable": {"type": "STRING"}, "min_items": {"type": "STRING"}}}
    assert set(as_json_schema(own)["properties"]) == {"nullable", "min_items"}


def test_all_that_googles_sdk_can_write_is_known() -> None:
    """A field of a later SDK that is neither JSON Schema nor converted fails here."""
    of_json_schema = {
        *("type", "format", "title", "description", "enum", "items", "properties", "required", "anyOf", "default"),
        *("maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties", "pattern", "minimum"),
        *("maximum", "additionalProperties", "$defs", "$ref", "example"),
    }
    written = as_json_schema(dict.fromkeys(types.Schema.model_fields))
    assert set(written) <= of_json_schema
