"""Conversion of Google's own schemas into JSON Schema.

Google describes the parameters of functions and the form of answers in a dialect of OpenAPI: types in capitals,
`nullable`, an order of properties, counts as texts, each name in two spellings. Other vendors refuse that. Clients
write either in the place of the other, Gemini CLI too, so what is JSON Schema already stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from history.dialects.json_access import items, obj

TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
UNSAID = ("type", "TYPE_UNSPECIFIED")
# Google's names in their other spelling, and where JSON Schema has a name of its own.
NAMES = {
    "any_of": "anyOf",
    "max_items": "maxItems",
    "min_items": "minItems",
    "max_length": "maxLength",
    "min_length": "minLength",
    "max_properties": "maxProperties",
    "min_properties": "minProperties",
    "additional_properties": "additionalProperties",
    "ref": "$ref",
    "defs": "$defs",
}
COUNTS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})
# Schemas themselves; lists of them; and names that somebody else chose, each with one.
ONE, SEVERAL, NAMED = (
    frozenset({"items", "additionalProperties"}),
    frozenset({"anyOf"}),
    frozenset({"properties", "$defs"}),
)
# Of which there is nothing like it; the null that may stand in a place is told by its type.
LEFT_OUT = frozenset({"propertyOrdering", "property_ordering", "nullable"})


def as_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    written = {
        (own := NAMES.get(name, name)): _value(own, value)
        for name, value in schema.items()
        if name not in LEFT_OUT and (name, value) != UNSAID
    }
    return _or_null(written) if schema.get("nullable") is True else written


def _value(name: str, value: Any) -> Any:
    if name == "type":
        return value.lower() if isinstance(value, str) and value in TYPES else value
    if name in COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value)
    if name in ONE:
        return _inner(value)
    if name in SEVERAL:
        return [_inner(one) for one in items(value)]
    if name in NAMED:
        return {inner: _inner(one) for inner, one in obj(value).items()}
    return value


def _inner(schema: Any) -> Any:
    """JSON Schema also knows true and false."""
    return as_json_schema(schema) if isinstance(schema, Mapping) else schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    choices = {"enum": [*items(schema["enum"]), None]} if "enum" in schema else {}
    return {**schema, **choices, "type": [schema["type"], "null"]} if isinstance(schema.get("type"), str) else schema
